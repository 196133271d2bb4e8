"""Rules as people put them, to be found again after a compaction.

`BUILDING` was at hand while the first writer was built, `SECOND` while the one after it was. A
correction is an older rule and the newer one that takes its place; they must not both stand.
"""

BUILDING = (
    "Never touch the files under vendor/, they are synced from upstream.",
    "Please keep the public API of the parser exactly as it is.",
    "All commit messages have to start with the ticket number.",
    "We don't support anything older than Python 3.9 any more.",
    "I'd rather have three small functions than one clever one.",
    "The release goes out on Thursday, so everything must be in by Wednesday noon.",
    "Use tabs, not spaces, in the Makefile.",
    "Whatever you do, leave the billing tables alone.",
    "My budget for the hotel is 900 euros, not a cent more.",
    "I am allergic to peanuts, so no meal with nuts.",
    "Only Dana may approve refunds above 200 dollars.",
    "Ask me before you install anything.",
    "Stick with SQLite; we are not running a database server.",
    "The tests should finish in under two minutes.",
    "No emojis in user-facing texts.",
    "Remember that the staging server is shared with the design team.",
    "Avoid any flight that leaves before nine in the morning.",
    "We agreed that error codes stay in the 4000 range.",
    "Don't send the mail until Peter has signed it off.",
    "It has to work without network access.",
    "Nunca borres los registros de auditoría.",
    "Prefiero que los comentarios estén en español.",
    "Bitte keine neuen Abhängigkeiten einführen.",
    "Die Schnittstelle darf sich nicht ändern.",
    "Il faut toujours garder une copie avant de modifier un fichier.",
    "N'utilise jamais la base de production pour les essais.",
    "Все сообщения об ошибках должны быть на русском языке.",
    "Не трогай каталог с миграциями.",
    "不要修改配置文件里的端口号。",
    "所有的日期必须使用UTC时间。",
    "本番環境には絶対に接続しないでください。",
    "変数名は必ず英語にしてください。",
    "테스트 데이터는 절대 삭제하지 마세요.",
    "Non cancellare mai la cartella dei backup.",
    "Sempre responda em português, por favor.",
)

CORRECTIONS = (
    (
        "The service must listen on port 8080.",
        "Actually, the service must listen on port 9191 instead.",
    ),
    (
        "Use the blue theme for the dashboard.",
        "Change of plan: use the green theme for the dashboard.",
    ),
    ("The deadline for the report is May 3.", "The deadline for the report has moved to May 17."),
    ("Please book the hotel for 2 nights.", "Scratch that, book the hotel for 4 nights."),
    (
        "Always store the uploads in the bucket acme-raw.",
        "From now on store the uploads in the bucket acme-clean.",
    ),
    ("Keep the retry limit at 3 attempts.", "The retry limit should be 7 attempts, not 3."),
    ("请把超时时间设为30秒。", "超时时间改为90秒。"),
    (
        "Der Bericht soll auf Englisch sein.",
        "Der Bericht soll doch auf Deutsch sein, nicht auf Englisch.",
    ),
    (
        "Usa siempre la rama develop para los cambios.",
        "Mejor usa siempre la rama release para los cambios.",
    ),
    (
        "We will deploy with Docker Compose.",
        "We will no longer deploy with Docker Compose but with Nomad.",
    ),
)

SECOND = (
    "Hands off the legacy importer, finance still runs it nightly.",
    "I can't stand abbreviations in column names.",
    "Nothing gets merged on a Friday.",
    "Our customers read this on phones, so lines longer than 60 characters are out.",
    "The intern account is for demos; real orders go through mine.",
    "Call me Robin, not Mr. Carter.",
    "We ship to Canada and Mexico, nowhere else.",
    "Anything above 1500 dollars goes past my manager first.",
    "You may read the payroll sheet but not write to it.",
    "Seats have to be next to each other, my son is six.",
    "Everything the bot says to customers needs a human to look at it beforehand.",
    "Round prices up to the next 50 cents.",
    "Let the old endpoint keep answering until June.",
    "Cap the cache at 256 MB.",
    "There is to be no telemetry in the community build.",
    "Leave the copyright headers as they are.",
    "My wife is vegetarian, mind that when you order.",
    "Log in UTC, show in local time.",
    "Before you delete a branch, check with Ines.",
    "If a test is flaky, quarantine it; deleting it is not an option.",
    "No se te ocurra tocar el servidor de correo.",
    "Quiero que todas las funciones tengan pruebas.",
    "Passwörter gehören nicht ins Protokoll.",
    "Antworte mir künftig auf Deutsch.",
    "Les montants sont toujours hors taxes.",
    "Surtout, ne change pas les noms des colonnes.",
    "Пиши комментарии только на английском.",
    "Данные клиентов не должны покидать наш сервер.",
    "只有管理员可以删除订单。",
    "回复客户时请用敬语。",
    "金額は税込みで表示すること。",
    "既存のテストを消してはいけません。",
    "배포는 반드시 승인을 받은 뒤에 하세요.",
    "I prezzi devono restare in euro.",
    "Não mexa na pasta de contratos.",
)

SECOND_CORRECTIONS = (
    (
        "Set the batch size to 500 rows.",
        "500 rows is too much, set the batch size to 120 rows from now on.",
    ),
    (
        "The meeting room is booked for 10 people.",
        "Correction: the meeting room is booked for 14 people.",
    ),
    (
        "Name the new table customer_events.",
        "Forget customer_events, name the new table client_events.",
    ),
    ("Ship the parcel to 12 Elm Street.", "Ship the parcel to 9 Oak Avenue instead."),
    (
        "Our minimum supported browser is Safari 14.",
        "Our minimum supported browser is now Safari 16.",
    ),
    ("Bezahlt wird mit der Karte 4411.", "Bezahlt wird doch mit der Karte 8822, nicht mit 4411."),
    ("会议改在星期三下午3点。", "会议不是3点，改为下午5点。"),
    ("Quiero salir el 4 de mayo.", "Mejor quiero salir el 6 de mayo."),
)
