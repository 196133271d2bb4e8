"""Corrections in other words, and pairs of rules on one subject that both hold.

For development: written by the writer's own builder before the part that they measure. Of
`REWORDED` the older sentence must not stand as if it were still true. Of `COMPANIONS` neither may
be dropped; that the older one is marked as earlier does no harm, but is not wanted either.
"""

REWORDED = (
    (
        "Indent the Terraform files with two spaces.",
        "Terraform wants tabs, the formatter complains otherwise.",
    ),
    (
        "Page size for the export is A4.",
        "The printers over there only take Letter, so export in that.",
    ),
    (
        "Keep responses to at most three paragraphs.",
        "A single paragraph per response is enough for me.",
    ),
    (
        "Send the weekly digest to everyone in the sales team.",
        "Only the regional leads should get the weekly digest.",
    ),
    (
        "Our rate limit is a hundred calls per minute.",
        "The vendor lets us make 250 calls a minute these days.",
    ),
    (
        "The keynote slot is at 10:30, plan the shuttle around that.",
        "They gave us the 14:00 keynote slot.",
    ),
    (
        "Put the feature behind the flag beta_checkout.",
        "The flag is called checkout_v2, ops created it.",
    ),
    (
        "Use British spelling in the docs.",
        "Docs are to be in American spelling, says marketing.",
    ),
    (
        "My car is a diesel, so look for diesel stations only.",
        "We are taking my wife's electric car, look for charging points.",
    ),
    (
        "Aim for 80 percent test coverage.",
        "Anything under 95 percent coverage gets rejected by the gate.",
    ),
    (
        "Write the migration in raw SQL.",
        "The migration should go through the ORM.",
    ),
    (
        "Bookings may be cancelled up to 48 hours ahead.",
        "Guests can cancel a booking as late as the day before.",
    ),
    (
        "I prefer to be contacted by phone.",
        "Text me, the phone line at the cabin is dead.",
    ),
    (
        "The mascot is an otter.",
        "They drew a badger for the mascot.",
    ),
    (
        "Backups are kept for 30 days.",
        "Legal wants a full year of backups.",
    ),
    (
        "Sort the results newest first.",
        "Oldest results belong at the top.",
    ),
    (
        "Deliver the sofa to the Hamilton address.",
        "The sofa comes to the flat in Dundas.",
    ),
    (
        "Charge the invoice to cost centre 4410.",
        "Accounting books this invoice on 5120.",
    ),
    (
        "The intro music should be jazz.",
        "For the intro I found a lovely piece of classical music, take that.",
    ),
    (
        "Name the branch hotfix/login.",
        "The branch goes by fix/session-expiry.",
    ),
    (
        "Alice reviews the pull requests for the parser.",
        "Parser pull requests are reviewed by Bogdan.",
    ),
    (
        "Use Redis as the message broker.",
        "The broker will be RabbitMQ, infra runs that already.",
    ),
    (
        "We fly out of Zurich.",
        "Flights leave from Basel, it is closer for everyone.",
    ),
    (
        "No meetings before eleven.",
        "I can do meetings from nine on.",
    ),
    (
        "Die Rechnung geht an die Filiale in Köln.",
        "Rechnungsempfänger ist die Zentrale in Hamburg.",
    ),
    (
        "Die Schriftgröße in den Folien ist 18 Punkt.",
        "Auf den Folien brauchen wir 24 Punkt Schrift, hinten konnte man nichts lesen.",
    ),
    (
        "Wir treffen uns freitags zum Abgleich.",
        "Der Abgleich findet montags statt.",
    ),
    (
        "El informe lleva el logotipo azul.",
        "En el informe ponemos el logotipo rojo de la nueva marca.",
    ),
    (
        "La cena es para ocho personas.",
        "Vienen doce personas a la cena.",
    ),
    (
        "Le rapport doit faire dix pages.",
        "Vingt pages pour le rapport, le comité veut des annexes.",
    ),
    (
        "Les relances partent tous les lundis.",
        "On envoie les relances le jeudi.",
    ),
    (
        "La consegna va fatta in magazzino.",
        "La consegna la riceve il portiere del negozio.",
    ),
    (
        "A reunião com o cliente fica para as 15h.",
        "O cliente só pode fazer a reunião às 17h.",
    ),
    (
        "Отчёт сдаём в пятницу.",
        "Отчёт нужен уже в среду.",
    ),
    (
        "Логи храним две недели.",
        "Хранить логи надо три месяца, так требует аудит.",
    ),
    (
        "报告的截止日期是周五。",
        "报告周三就要交。",
    ),
    (
        "数据库用的是MySQL。",
        "我们的数据库是PostgreSQL。",
    ),
    (
        "会議は第二会議室で行います。",
        "会議はオンラインで開催します。",
    ),
    (
        "画像の形式はPNGにしてください。",
        "画像はWebPで書き出してください。",
    ),
    (
        "회의는 매주 화요일에 합니다.",
        "회의 날짜는 목요일입니다.",
    ),
    (
        "De factuur gaat naar de vestiging in Gent.",
        "Stuur de factuur naar Antwerpen.",
    ),
    (
        "Spotkanie jest w poniedziałek.",
        "Na spotkanie umówiliśmy się w czwartek.",
    ),
)

COMPANIONS = (
    (
        "Indent the Terraform files with two spaces.",
        "Terraform files live in the infra folder.",
    ),
    (
        "The export has to be in A4.",
        "The export needs page numbers in the footer.",
    ),
    (
        "Keep responses to at most three paragraphs.",
        "Responses should cite the document they rest on.",
    ),
    (
        "The weekly digest goes to the sales team.",
        "Never attach files to the weekly digest.",
    ),
    (
        "We may make 100 calls per minute to the vendor.",
        "Each call to the vendor has to carry a trace id.",
    ),
    (
        "The keynote is at 10:30.",
        "The keynote speaker needs a lapel microphone.",
    ),
    (
        "Log every refund above 50 dollars.",
        "Refunds above 500 dollars need a second signature.",
    ),
    (
        "Write the docs in British spelling.",
        "The docs must build without warnings.",
    ),
    (
        "The car must have a roof rack.",
        "The car has to be returned before Sunday noon.",
    ),
    (
        "Unit tests must not touch the network.",
        "Integration tests may touch the staging network.",
    ),
    (
        "The migration must be reversible.",
        "The migration has to run in under ten minutes.",
    ),
    (
        "Bookings need a phone number.",
        "Bookings for more than eight people need a deposit of 100 euros.",
    ),
    (
        "Bob approves changes to the parser.",
        "Carla approves changes to the printer.",
    ),
    (
        "The Berlin office closes at six.",
        "The Madrid office closes at eight.",
    ),
    (
        "Backups run every night at two.",
        "Backups are kept for 30 days.",
    ),
    (
        "Sort the results by date.",
        "Show at most twenty results per page.",
    ),
    (
        "The sofa must fit through a door of 80 cm.",
        "The sofa has to be grey.",
    ),
    (
        "Invoices are numbered by year.",
        "Invoices are due within 14 days.",
    ),
    (
        "Use Redis for the cache.",
        "Use PostgreSQL for the sessions.",
    ),
    (
        "Passengers under twelve fly with an adult.",
        "Passengers over sixty get a seat at the front.",
    ),
    (
        "Errors go to stderr.",
        "Errors have a code between 4000 and 4999.",
    ),
    (
        "Headings are in Georgia.",
        "Body text is in Verdana.",
    ),
    (
        "Dogs are welcome in the garden flat.",
        "Dogs are not allowed in the tower flat.",
    ),
    (
        "Timeouts for reads are 5 seconds.",
        "Timeouts for writes are 30 seconds.",
    ),
    (
        "Never deploy on Fridays.",
        "Deploys are announced in the ops channel 30 minutes ahead.",
    ),
    (
        "Don't rename the columns of the orders table.",
        "Don't drop the indexes of the orders table.",
    ),
    (
        "Die Folien sind auf Deutsch.",
        "Auf den Folien steht immer das Datum.",
    ),
    (
        "Rechnungen unter 100 Euro darf Jana freigeben.",
        "Rechnungen über 1000 Euro gibt nur Herr Vogt frei.",
    ),
    (
        "El informe va en español.",
        "El informe debe llevar un índice.",
    ),
    (
        "Las cenas de grupo se pagan con la tarjeta de empresa.",
        "Las cenas de grupo no pasan de 40 euros por persona.",
    ),
    (
        "Le rapport doit faire dix pages.",
        "Le rapport est signé par la directrice.",
    ),
    (
        "La consegna va fatta in magazzino.",
        "La consegna avviene solo al mattino.",
    ),
    (
        "A reunião começa às 15h.",
        "A reunião precisa de uma ata.",
    ),
    (
        "Отчёт должен быть в формате PDF.",
        "В отчёт включай только закрытые задачи.",
    ),
    (
        "Логи пишем в UTC.",
        "Логи не должны содержать пароли.",
    ),
    (
        "报告要附上图表。",
        "报告必须用英文写。",
    ),
    (
        "数据库每天备份一次。",
        "数据库密码不得写进代码。",
    ),
    (
        "会議の資料は前日までに送ってください。",
        "会議の議事録は必ず残してください。",
    ),
    (
        "画像の幅は1200ピクセルまでです。",
        "画像には必ず代替テキストを付けてください。",
    ),
    (
        "회의록은 영어로 작성해 주세요.",
        "회의는 한 시간을 넘기면 안 됩니다.",
    ),
)
