"""A third set of rules, corrections and companions, sealed: to be measured once.

Written by someone who had seen no code of the tool and only samples of the earlier sets.
THIRD: what binds an agent. THIRD_CORRECTIONS: (older, newer), where the newer value replaces the
older one. THIRD_COMPANIONS: (first, second), alike in words or subject, and both of them hold.
"""

THIRD = (
    (
        "the generated files in src/gen/ are off limits, regenerate them from the .proto if you "
        "need a change"
    ),
    "Could you keep commits small? Nobody on my team reviews anything above 300 lines in one go.",
    "日志里不要打印用户的手机号，哪怕是调试模式也不行。",
    "We're stuck on Node 16 until the customer upgrades their servers, so no built-in fetch.",
    "I'd rather you asked me one question too many than guessed at the schema.",
    "我对花生过敏，推荐餐厅的时候请把东南亚菜先排除掉。",
    (
        "if the tests in test_billing.py fail twice in a row stop and tell me, dont keep "
        "hammering at it"
    ),
    "You may read from the prod replica, but writes to it are out of the question.",
    "报告请在6月18日下班前给我，周末我不看邮件。",
    "The refund window for marketplace orders is 21 days from delivery, not from purchase.",
    (
        "Please never mention the outage of last Tuesday to customers unless they bring it up "
        "themselves."
    ),
    "コメントは日本語で書いてください。変数名は英語のままで構いません。",
    "My order number is 8841-KQ and anything you send should go to the office on Harbour Street.",
    "I'm vegetarian but fish sauce is fine, don't make a fuss about it in recipes.",
    "本番のデータベースには、私が許可するまで絶対に接続しないでください。",
    "We land at 23:40 so any hotel without a night desk is useless to us.",
    "Dad uses a wheelchair. Two steps at the entrance already means we can't go in.",
    "No me propongas vuelos con escala en Madrid, la última vez perdimos las maletas.",
    "no semicolons in the js pls, prettier is set up that way and CI moans",
    "My thesis chapter is due on 9 May and my supervisor wants it a week before that.",
    "porfa contesta corto, estoy en el móvil y casi no tengo batería",
    "Only cite papers from 2018 onwards, the committee considers everything older settled.",
    "Talk to me like a grumpy old sailor, it keeps me awake.",
    (
        "Die Rechnungen müssen zehn Jahre aufbewahrt werden, also lösch bitte nichts im "
        "Archivordner."
    ),
    "Don't sugarcoat it. If the plan is bad I want to read that in your first sentence.",
    "We settled on event sourcing for the ledger; the other services stay plain CRUD.",
    "Wenn der Build länger als 12 Minuten dauert, brich ihn ab und sag mir Bescheid.",
    (
        "The budget for the kitchen is 7,500 euros including the plumber, and I really mean "
        "including."
    ),
    (
        "Whenever the thermostat reads under 16 C at night, turn the hall radiator on, otherwise "
        "leave it."
    ),
    "Обращайся ко мне на «ты», без официоза.",
    "The cat is on a kidney diet, so no treats with phosphorus above 0.5 percent go on the list.",
    (
        "Our legal folks don't let us ship anything GPL, so check the license before you add a "
        "crate."
    ),
    ("Сервер в Казани не трогай, его обслуживает другая команда."),
    "I use a screen reader, which means ASCII tables and diagrams are pure noise to me.",
    "k so from now on all prices in swiss francs ok? im sick of converting",
    "On a tranché hier : ce sera PostgreSQL 15, et on n'en reparle plus.",
    "Migrations have to be reversible. I got burned once and that was plenty.",
    (
        "The staging cluster gets wiped every night at 02:00 UTC, so nothing you leave there "
        "survives."
    ),
    "Ma mère ne supporte pas l'ail, il faudrait donc des recettes qui s'en passent.",
    "You can spend up to 40 dollars on API calls for this without asking; beyond that, ping me.",
    (
        'Hey, small thing: my name is spelled Siobhan, and please use "they" when you write '
        "about me."
    ),
    "Pode mexer no CSS à vontade, mas o HTML dos e-mails tem que ficar como está.",
    "For what it's worth, I've never liked it when error messages apologise to the user.",
    "Customers on the Basic plan don't get phone support, however nicely they ask for it.",
    "테스트 코드에는 외부 네트워크 호출을 넣지 말아 주세요. CI에서 막혀 있어요.",
    "Let's stay away from mocks in this repo, a real Redis in a container is what we test with.",
    "Tabs in the Makefile, four spaces everywhere else, and no line should pass 96 columns.",
    "숙소는 1박에 12만 원을 넘지 않았으면 좋겠어요.",
    "I can't do calls before 10:30 because of the school run.",
    "Kindly leave the TODO comments where they are; Priya tracks them with a script.",
    "أرجو ألا تستخدم اسم العميل الحقيقي في أي مثال، اكتب «شركة أ» بدلاً منه.",
    "the api key for the sandbox expires on june 3 so any demo recording has to be done before",
    "Unless the patient record has a signed consent form, skip it in the export.",
    "मुझे जवाब हिंदी में ही चाहिए, तकनीकी शब्द अंग्रेज़ी में चलेंगे।",
    (
        "One thing about the tone: the newsletter goes to retired engineers, so no emojis and no "
        "hype."
    ),
    "Nobody besides Tomas may approve a change to the firewall rules, me included.",
    "Se il cliente chiede uno sconto superiore al 15%, passa la conversazione a Giulia.",
    (
        "When you're done with a step just say \"done\" and nothing more, I'm watching the diff "
        "anyway."
    ),
    (
        "I've been thinking about the trip again, and having talked to my wife about it, what it "
        "comes down to is that we'd both like to avoid any drive longer than three hours in one "
        "day, because the little one gets carsick and then none of us have a good time."
    ),
    "Toplantıları cuma öğleden sonraya koyma, o saatlerde ofiste kimse olmuyor.",
    (
        "So the background is that we had an intern two years ago who force-pushed over a week "
        "of work, and ever since then the rule on this team has been that history on shared "
        "branches isn't rewritten, not even to fix a typo in a message."
    ),
    (
        "Right, the spreadsheet looks good. The column called net_kg is actually in pounds, "
        "somebody named it badly in 2019 and we can't rename it, so divide by 2.205 wherever you "
        "use it."
    ),
    "Nie używaj biblioteki moment.js, w tym projekcie mamy już date-fns.",
    (
        "I don't mind which framework you pick for the dashboard as long as it works offline, "
        "the factory floor has no internet whatsoever."
    ),
    (
        "It'd be lovely if the meal plan had leftovers on Wednesdays, that's when I'm home after "
        "nine."
    ),
    "Het rapport mag hooguit vier pagina's zijn, anders leest de wethouder het niet.",
    "You're welcome to bump patch versions by yourself. A minor or major bump needs my ok first.",
    "the p99 for /search must not go over 180 ms, thats in the contract w/ the client",
    "Jag vill att du frågar innan du installerar något globalt på den här datorn.",
    (
        "Eventually I'd want this in the app store, which is why I keep saying nothing may "
        "depend on private iOS APIs."
    ),
    "We promised the school that the pupils' names would never leave this laptop.",
    "Đừng gửi email cho khách sau 8 giờ tối, họ đã phàn nàn hai lần rồi.",
)

THIRD_CORRECTIONS = (
    # corrected in so many words
    (
        "Deploy the worker to eu-west-1, that's where our data lives.",
        "Actually no, the worker belongs in eu-central-1, I mixed up the regions.",
    ),
    (
        "Book the table for six people on Saturday.",
        "Correction: we'll be nine on Saturday, my cousins are coming along.",
    ),
    (
        "发布时间定在周三晚上十点。",
        "刚才说错了，发布改到周四早上七点。",
    ),
    (
        "log level should be debug while we hunt this bug",
        "scratch that, log level warn, debug fills the disk",
    ),
    (
        "Write the grant summary in the first person plural.",
        "I was wrong about the grant summary, the funder wants third person throughout.",
    ),
    (
        "Mándame el resumen los lunes por la mañana.",
        "Mejor no los lunes, mándame el resumen los viernes a última hora.",
    ),
    (
        "The retry limit for the upload job is 5.",
        "Not 5 retries for the upload job, 2. It hammers the bucket otherwise.",
    ),
    (
        "Ship the replacement kettle to my flat at 14 Elm Row.",
        "Wait, don't ship the kettle to Elm Row, my sister at 3 Quay Lane will take it in.",
    ),
    (
        "Les captures d'écran doivent être en PNG.",
        "En fait non, pas de PNG : les captures d'écran en WebP, c'est plus léger.",
    ),
    (
        "We'll use Jest for the component tests.",
        "Forget what I said about Jest, the component tests are going to be in Vitest.",
    ),
    (
        "Sort the references alphabetically by author.",
        "Sorry, changed my mind, references go in order of appearance instead.",
    ),
    (
        "Кэш должен жить 10 минут.",
        "Нет, погоди, я ошибся: кэш должен жить час.",
    ),
    # the sentence again, with another value
    (
        "The session cookie should expire after 30 minutes.",
        "The session cookie should expire after 8 hours.",
    ),
    (
        "Keep each blog post under 600 words.",
        "Keep each blog post under 950 words.",
    ),
    (
        "ユニットテストのカバレッジは70%以上にしてください。",
        "ユニットテストのカバレッジは85%以上にしてください。",
    ),
    (
        "The release branch is called rel/4.2.",
        "The release branch is called rel/4.3.",
    ),
    (
        "my flight home is on oct 11 so plan around that",
        "my flight home is on oct 14 so plan around that",
    ),
    (
        "Das Budget für den Umzug liegt bei 1.800 Euro.",
        "Das Budget für den Umzug liegt bei 2.300 Euro.",
    ),
    (
        "All new endpoints go under /api/v2.",
        "All new endpoints go under /api/v3.",
    ),
    (
        "You can offer unhappy customers a voucher of up to 10 pounds.",
        "You can offer unhappy customers a voucher of up to 25 pounds.",
    ),
    (
        "회의록은 노션에 정리해 주세요.",
        "회의록은 컨플루언스에 정리해 주세요.",
    ),
    (
        "Answer me in British English, please.",
        "Answer me in American English, please.",
    ),
    (
        "Water the tomatoes every second day at 6 am.",
        "Water the tomatoes every day at 7 pm.",
    ),
    (
        "Il database di prova gira sulla porta 5433.",
        "Il database di prova gira sulla porta 5440.",
    ),
    # only the new value, in other words
    (
        "Payments are to go through Stripe.",
        "The contract with Adyen is signed, they'll be handling every payment for us.",
    ),
    (
        "Aim to have the prototype ready by the end of April.",
        "The board wants to hold the prototype in their hands on 10 April.",
    ),
    (
        "O suporte atende das 9h às 18h.",
        "Desde ontem a equipe só responde clientes até as 16h.",
    ),
    (
        "Put the config in a YAML file.",
        "Everyone here is happier with TOML for configuration, so that's what it'll be.",
    ),
    (
        "We're travelling by car to the wedding.",
        "I got us train tickets for the wedding, the Friday 8:12.",
    ),
    (
        "اكتب التقرير بالعربية الفصحى.",
        "المدير الجديد لا يقرأ إلا الإنجليزية، فليكن التقرير بها.",
    ),
    (
        "The max upload size is 20 MB.",
        (
            "marketing wants ppl to be able to upload videos so files up to 250 megs have to go "
            "through"
        ),
    ),
    (
        "Ana signs off on the translations.",
        "Since this week it's Marek who has the last word on anything translated.",
    ),
    (
        "Doktor randevum salı günü saat 11'de.",
        "Klinik aradı, doktor beni perşembe 14.30'da görecekmiş.",
    ),
    (
        "I eat around 2,000 kcal a day, so plan the meals for that.",
        "My dietician has me at 1,650 calories daily now.",
    ),
    (
        "Call the new package orbit-core.",
        "I registered the package on PyPI as heliograph, so that's its name.",
    ),
    (
        "Strona ma być w odcieniach niebieskiego.",
        "Klientka wybrała wczoraj paletę dla witryny: ciemna zieleń i beż.",
    ),
)

THIRD_COMPANIONS = (
    (
        "Tests are named after the bug they cover.",
        "Docs pages are named after the feature they cover.",
    ),
    (
        "Never delete anything in the shared drive.",
        "In the shared drive, the tmp folder may be emptied whenever it's full.",
    ),
    (
        "前端的缩进用两个空格。",
        "后端的缩进用四个空格。",
    ),
    (
        "The hotel may cost at most 140 euros a night.",
        "The rental car may cost at most 55 euros a day.",
    ),
    (
        "Use single quotes in Python code.",
        "Use double quotes in the JSON fixtures.",
    ),
    (
        "社内向けの資料は敬語なしで大丈夫です。",
        "お客様向けの資料は必ず敬語でお願いします。",
    ),
    (
        "Reply to complaints within four hours.",
        "Reply to press enquiries within two days.",
    ),
    (
        "keep functions under 40 lines",
        "keep files under 500 lines",
    ),
    (
        "Los correos a proveedores van en inglés.",
        "Los correos a empleados van en español.",
    ),
    (
        "Answers to me can be as informal as you like.",
        "Anything addressed to the client has to be formal.",
    ),
    (
        "My son is allergic to walnuts.",
        "My daughter is allergic to kiwi.",
    ),
    (
        "Commits bitte auf Englisch.",
        "Commits bitte immer mit der Ticketnummer am Anfang.",
    ),
    (
        "The timeout for the login service is 3 seconds.",
        "The timeout for the report service is 90 seconds.",
    ),
    (
        "Pull requests need one approval.",
        "Pull requests touching auth/ need two approvals.",
    ),
    (
        "В рабочие дни не пиши мне до девяти утра.",
        "По выходным не пиши мне вообще.",
    ),
    (
        "No meetings on Mondays, please.",
        "No meetings during the first week of August either.",
    ),
    (
        "Draft of the paper goes to Ines on the 4th.",
        "Camera-ready version of the paper goes to the publisher on the 25th.",
    ),
    (
        "Les images de la page d'accueil ne dépassent pas 200 Ko.",
        "Les images de la galerie ne dépassent pas 1 Mo.",
    ),
    (
        "The backend is written in Go.",
        "The command line client is written in Rust.",
    ),
    (
        "you can restart the dev server as often as you want",
        "you can restart the staging server once an hour, not more",
    ),
    (
        "Não altere nada na pasta legado.",
        "Na pasta legado, só o README pode ser atualizado.",
    ),
    (
        "Refunds below 50 dollars you can grant yourself.",
        "Refunds on gift cards always go to the finance team.",
    ),
    (
        "Log entries are in UTC.",
        "Dates shown to users are in their local time zone.",
    ),
    (
        "서울 일정은 대중교통으로만 짜 주세요.",
        "제주 일정은 렌터카로 짜 주세요.",
    ),
    (
        "Please don't book any window seats for me.",
        "Please book a window seat for my mother.",
    ),
    (
        "Summaries should be at most five sentences.",
        "Summaries should open with the finding, not the method.",
    ),
    (
        "لا تحجز فندقاً بعيداً عن الحرم أكثر من كيلومتر.",
        "لا تحجز رحلة تصل بعد منتصف الليل.",
    ),
    (
        "We don't eat pork at home.",
        "We don't eat anything with raw eggs while my wife is pregnant.",
    ),
    (
        "Python 3.9 is the oldest version the library has to support.",
        "Python 3.12 is what the docs get built with.",
    ),
    (
        "पापा को कम नमक वाला खाना चाहिए।",
        "मम्मी को बिना चीनी वाला खाना चाहिए।",
    ),
    (
        "The living room lights go off at 23:00.",
        "The porch light stays on until sunrise.",
    ),
    (
        "Don't add dependencies to the core package.",
        "Dev dependencies are fine to add as long as they're pinned.",
    ),
    (
        "De facturen worden op de 1e van de maand verstuurd.",
        "De herinneringen worden op de 15e van de maand verstuurd.",
    ),
    (
        "The free tier allows 100 requests per minute.",
        "The free tier allows 5,000 requests per month.",
    ),
    (
        "Call the customer by first name in chat.",
        "Call the customer by last name in letters.",
    ),
    (
        "La versione stabile esce ogni tre mesi.",
        "La versione beta esce ogni due settimane.",
    ),
)
