"""Rules and corrections to measure once: written by someone who had seen neither writer nor set.

Whoever changes the writer after having read what is lost of these measures with new ones.
"""

HELD_BACK = (
    "Don't touch anything under vendor/, even if the linter complains about it.",
    "My manager skims these in the lift, so anything past the first paragraph goes unread.",
    "Run the integration suite against the staging database before you open any merge request.",
    "Whatever we book, the hotel total has to stay below $640 for all three nights together.",
    (
        "Our security audit is on the 14th, and nothing with an open CVE can be in the "
        "image by then."
    ),
    (
        "I get migraines from bright charts, dark backgrounds are the only ones I can "
        "look at for long."
    ),
    "pls dont rename the public methods, other teams import em and ill get yelled at",
    "My daughter is allergic to sesame, which rules out most of the snack boxes you listed.",
    "For the rest of today, answer me in bullet points only; I'm on a train with patchy signal.",
    "If a payment call times out, never retry it automatically; log it and ask me first.",
    "After last quarter's mess, the team went with DuckDB for local analytics.",
    "Webpack had its chance here and we're not going back to it.",
    (
        "You have my go-ahead to delete the old preview branches, but main and release "
        "stay as they are."
    ),
    "I won't be needing docstrings on the private helpers.",
    (
        "Commit messages in this repo start with the ticket number, like PAY-381, then a "
        "lowercase verb."
    ),
    "I can't do red-eyes anymore, so any departure between 10pm and 6am is out.",
    "The refund should go back to the gift card ending 4471 and not to my credit card.",
    "Sarah from legal signs off on every customer-facing sentence before it goes live.",
    "It'd be lovely if you could keep the tone warm, since these folks just lost their funding.",
    (
        "Act as a skeptical reviewer for this paper: point out weaknesses first, "
        "compliments later if at all."
    ),
    (
        "Only cite peer-reviewed studies from 2018 onwards; preprints and blog posts "
        "don't count for this review."
    ),
    "we're on python 3.9 in prod btw so no match statements",
    "The CI runners have just 2 GB of memory, and anything heavier gets killed silently.",
    "Ask me before you spend more than fifty API credits in one go.",
    (
        "When you hand this over to Priya, include the exact commands you ran and what is "
        "still broken."
    ),
    (
        "Mum uses a wheelchair and will be travelling with me. We need the aisle chair "
        "and a ground-floor room."
    ),
    "Everything should be ready for the board by Thursday noon, London time.",
    "I'd rather have a slow query that's readable than a clever one nobody can debug.",
    (
        "Should the migration fail halfway, roll back everything and leave the database "
        "alone until I'm awake."
    ),
    (
        "Nobody outside the core team knows about the acquisition, so leave the name "
        "Halcyon out of every document."
    ),
    ('All amounts in this spreadsheet are in Swiss francs, including the columns labelled "USD".'),
    "Kindly refrain from emailing the supplier directly; all contact goes through Tomasz.",
    "The weather API tolerates four requests per second and bans our key for a day above that.",
    "no emojis. not in the readme, not in the changelog, not anywhere",
    ("I only fly with one carry-on, don't bother offering me fares with checked luggage included."),
    "Feature flags around here default to off, and turning one on is a separate pull request.",
    "The tests in legacy_billing are flaky and known to be, I'm not asking you to fix those.",
    "Until the auditors leave on Friday, treat the production bucket as read-only.",
    (
        "Spell it the British way, the journal sent our last manuscript back over "
        "American spellings."
    ),
    "Exchange the lamp only if the brass one is in stock; otherwise cancel the whole order.",
    "My visa situation doesn't let me transit through the US, sadly.",
    "We talked about GraphQL for ages and it lost, so REST endpoints it is.",
    "ok but keep it under 300 lines total, anything bigger wont get reviewed this week",
    "You may read my calendar, but moving or declining meetings is something I do myself.",
    "Could we perhaps avoid phone calls? I'm hard of hearing and text works much better for me.",
    "Real patient names must never show up in logs, fixtures or screenshots.",
    "dont push stright to master, make a brnach and ill merge it myself tmrw",
    "Our building only takes deliveries after 5, the package room is locked before that.",
    (
        "Swap out tiny helper packages if you like, though adding any new dependency "
        "needs a yes from Dmitri."
    ),
    "Let's stick with tabs in the Makefile and two spaces everywhere else.",
    "El presupuesto para los vuelos de los cuatro es de 1.200 euros, maletas incluidas.",
    "Si el cliente pregunta por descuentos, no prometas nada y pásale la conversación a Lucía.",
    (
        "Bei uns wird im Code alles auf Englisch benannt, nur die Kommentare fürs "
        "Finanzamt bleiben deutsch."
    ),
    "Die Kundendaten dürfen die EU nicht verlassen, also fallen die amerikanischen Server weg.",
    "Tutoyer les clients, ça ne passe pas chez nous, même dans les courriels automatiques.",
    "Il me faut le rapport final avant le 22 à midi, après ça le comité ne lit plus rien.",
    "não mexe no arquivo de config do servidor sem me avisar antes, blz?",
    "Meu pai só viaja em assento de corredor por causa do joelho operado.",
    "Abbiamo scelto Flutter per l'app, di React Native non voglio più sentir parlare.",
    "Preferirei risposte brevi, al massimo cinque righe, perché leggo tutto dallo smartwatch.",
    "Пароли и токены в репозиторий не попадают ни при каких условиях, даже тестовые.",
    "Пока Марина в отпуске, то есть до третьего сентября, все счета согласуем с Олегом.",
    "这个项目线上只有 Node 18,请不要使用更高版本才有的接口。",
    "我妈妈不吃牛肉,订餐厅的时候牛排馆和烤肉店就不用考虑了。",
    "本番環境のデータベースには、私の許可なしに絶対に接続しないでください。",
    "社長は数字しか見ないので、報告書に長い前置きがあっても読まれません。",
    "환불은 포인트 말고 반드시 원래 결제한 카드로 처리해 주세요.",
    "Toplantıları cuma öğleden sonraya koyma, o saatlerde çocukları okuldan ben alıyorum.",
    "Voor deze sessie hoef je geen tests te draaien, dat doet Joris vanavond zelf.",
    "Jeśli lot będzie opóźniony o więcej niż trzy godziny, chcę zwrot pieniędzy, a nie voucher.",
    "لا ترسل أي رسالة إلى العملاء قبل أن أراجعها وأوافق عليها بنفسي.",
    "बजट पंद्रह हज़ार रुपये से ऊपर नहीं जाना चाहिए, चाहे होटल कितना भी अच्छा हो।",
)

HELD_BACK_CORRECTIONS = (
    (
        "The demo for the investors is on March 12, so aim for a working build by then.",
        "Actually, the investors moved their demo to March 19.",
    ),
    (
        "Use Poetry to manage the Python packages in this service.",
        "Scrap Poetry, uv handles the Python packages in this service now.",
    ),
    (
        "Keep the catering for the offsite under $900 in total.",
        "Finance just gave us $1,350 for the offsite catering.",
    ),
    (
        "My contact at the warehouse is Glenn, send him the return labels.",
        "Glenn has left the warehouse; return labels go to Annika from now on.",
    ),
    (
        "Limit the summary to two pages, the reviewers won't read more.",
        "I was wrong about the summary, the reviewers accept just one page.",
    ),
    (
        "I'd like a window seat on both legs, please.",
        "on second thought aisle seats for both legs, my back is acting up",
    ),
    (
        "Indent the YAML files with four spaces.",
        "The YAML files get two-space indentation.",
    ),
    (
        "Set the request timeout to 30 seconds for the upload endpoint.",
        "The upload endpoint should time out after 90 seconds, 30 was cutting off big files.",
    ),
    (
        "Ship the replacement blender to my office on Pine Street.",
        "Don't send the blender to the office after all, ship it to my home at 18 Alder Court.",
    ),
    (
        "We're calling the new command-line tool driftwood.",
        "Marketing vetoed driftwood, so the command-line tool is named tidepool.",
    ),
    (
        "Write the newsletter in a playful tone with a few jokes.",
        "Given the layoffs, the newsletter should sound sober, with no jokes.",
    ),
    (
        "You can merge dependency bumps yourself once CI is green.",
        (
            "Forget what I said about merging dependency bumps: every one of them waits for "
            "my approval."
        ),
    ),
    (
        "Store the session data in Memcached.",
        "Session data lives in Postgres, the ops team decided this morning.",
    ),
    (
        "We're a party of six for the dinner on Saturday.",
        "two more cousins are coming so its eight of us for saturdays dinner",
    ),
    (
        "Include only clinical trials with at least 100 participants.",
        "Lower the bar to trials with 40 or more participants, otherwise we have too few.",
    ),
    (
        "Deploys happen on Tuesdays around 9 in the morning.",
        "Starting this sprint we deploy on Wednesdays at 4 in the afternoon.",
    ),
    (
        "La reunión con el proveedor es el martes a las diez.",
        "Perdona, me equivoqué: la reunión con el proveedor es el jueves a las cuatro.",
    ),
    (
        "Die Berichte bitte immer als PDF an Frau Keller schicken.",
        "Frau Keller möchte die Berichte ab sofort als Excel-Datei bekommen.",
    ),
    (
        "Réserve l'hôtel à Lyon pour trois nuits, du 5 au 8 mai.",
        "Finalement on reste cinq nuits à Lyon, du 5 au 10 mai.",
    ),
    (
        "Per i test end-to-end usiamo Cypress.",
        "Lascia perdere Cypress, i test end-to-end li facciamo con Playwright.",
    ),
    (
        "Максимум на ноутбук — 80 тысяч рублей.",
        "На ноутбук можно потратить до 110 тысяч рублей, премию дали.",
    ),
    (
        "文档请统一用英文写,不要用中文。",
        "文档改用中文写吧,客户看不懂英文。",
    ),
    (
        "배송지는 부산 본가로 해 주세요.",
        "아까 말한 배송지를 서울 회사 주소로 바꿔 주세요.",
    ),
    (
        "O deploy vai para a região de São Paulo na AWS.",
        "Mudança de planos: o deploy agora vai para a região da Virgínia.",
    ),
)
