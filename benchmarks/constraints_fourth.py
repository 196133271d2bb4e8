"""A fourth set of rules, corrections and companions, in the voice of those who type at an agent.

Written before its writer had read the code that finds rules, or what it lost of the other sets.
Measured once before the work it judges and once after; its losses were not read in between.
FOURTH: what binds an agent. FOURTH_CORRECTIONS: (older, newer), where the newer one replaces the
older one. FOURTH_COMPANIONS: (first, second), alike in words or subject, and both of them hold.
"""

FOURTH = (
    # What must not be.
    "Do not add any new dependencies to pyproject.toml, we ship this on an air-gapped box.",
    "never run the integration suite against the shared redis, other people are on it",
    "Please leave the public signatures in api/client.py exactly as they are.",
    "hands off anything under vendor/, that's synced from upstream by a bot",
    "I don't want any emojis in commit messages or log output.",
    "No mocking of the database in tests, use the sqlite fixture.",
    "stop adding docstrings to private helpers, nobody reads them",
    "You're not allowed to push to main, open a branch and I'll merge it myself.",
    "Don't ever print the contents of .env, not even partially masked.",
    "Avoid asyncio.gather in this codebase; we had leaks with it, task groups only.",
    "Under no circumstances should the migration touch the invoices table.",
    "Nothing in this repo may import from legacy.compat any more.",
    # What must be.
    "Every new endpoint needs an entry in docs/openapi.yaml in the same commit.",
    "use tabs in the Makefile and two spaces everywhere else",
    "All timestamps we store are UTC with an explicit offset, local time is only for display.",
    "Always give me the diff before you write to disk.",
    "make sure each commit builds on its own, we bisect a lot",
    "New strings have to go through gettext, including the ones in error messages.",
    "From here on out, prefix branch names with rk/ so the cleanup job skips them.",
    "Keep functions under 40 lines, the linter will complain otherwise.",
    "Public functions need type hints, and mypy has to stay clean in strict mode.",
    "When naming tests, write what should happen, like test_rejects_an_empty_cart.",
    # On a condition.
    "If you're about to delete more than one file, ask me first.",
    "Whenever you change the schema, regenerate the fixtures with make fixtures.",
    "In case the linter and the style guide disagree, the style guide wins.",
    "Unless I say otherwise, assume Python 3.9 as the oldest version we support.",
    "only bump the major version when a public function goes away",
    "If a test is flaky mark it with @pytest.mark.flaky, don't just rerun until it's green.",
    "before touching anything in payments/ check with Ivana, she owns that part",
    "Once a PR has two approvals you may squash it, not earlier.",
    # What is liked better.
    "I prefer early returns over nested ifs, please write it that way.",
    "I'd like short answers, just the code and maybe one sentence.",
    "If there's a choice I'd always take the standard library over a package.",
    "composition over inheritance please, I really dislike mixins",
    "We like our SQL keywords in upper case.",
    "I'd rather have a failing test than a skipped one.",
    # What the house has laid down.
    "Customer data must stay in the Frankfurt region, that's in our contract with the bank.",
    "Company policy is that secrets live in Vault and nowhere else.",
    "Our coding standard forbids wildcard imports.",
    "Support only covers the last two minor releases, older ones get no backports.",
    "We don't log request bodies, legal asked us to stop.",
    "Silver members get one free bag on domestic flights, and there are no exceptions to that.",
    "Gift card purchases are final, so no refunds on those.",
    # Values.
    "The hard limit for a request is 30 seconds end to end, gateway included.",
    "line length is 100, not 88",
    "Memory must stay under 512 MB or the pod gets killed.",
    "My budget for the hotel tops out at 140 a night, breakfast included.",
    "We target Postgres 13, so no MERGE statements.",
    "The service listens on port 8443 and nothing else is open in the firewall.",
    "I can only fly after 11am because of my kid's school run.",
    "I always sit on the aisle, bad knee.",
    "coverage may not drop below 87 percent",
    # In other languages.
    "Schreib die Commit-Nachrichten auf Englisch, auch wenn wir hier Deutsch reden.",
    "Bitte keine neuen Abhängigkeiten ohne Rücksprache.",
    "Ne modifie jamais les fichiers du dossier contrib, ils viennent d'un autre dépôt.",
    "On garde Java 11 tant que le client n'a pas migré.",
    "No uses la base de datos de producción para las pruebas.",
    "Siempre quiero ver el plan antes de que cambies código.",
    "所有接口都要返回统一的错误码，不要直接抛异常。",
    "テストが通るまでコミットしないでください。",
    "Все сообщения об ошибках пиши по-русски, логи на английском.",
    "Não mexa nos arquivos de configuração do servidor sem me avisar.",
)

FOURTH_CORRECTIONS = (
    ("The upload limit is 20 MB per file.", "Make that 8 MB per file, the proxy cuts off above."),
    (
        "Use black for formatting, line length 88.",
        "Forget black, we format with ruff format now.",
    ),
    (
        "Keep the retry count at 3 for all outgoing calls.",
        "The retry count for outgoing calls goes up to 5, ops asked for it.",
    ),
    (
        "Write the changelog entries in past tense.",
        "Changelog entries should be imperative after all, like the commits.",
    ),
    (
        "Don't touch the CLI module for now, Ben is refactoring it.",
        "Ben is done, so you may change the CLI module again.",
    ),
    (
        "Sessions time out after 15 minutes.",
        "I was wrong about the sessions, they time out after 45 minutes.",
    ),
    (
        "Send the confirmation to my work address, lena@kestrel.example.",
        "Actually send the confirmation to lena.home@finch.example instead.",
    ),
    (
        "We deploy on Fridays before noon.",
        "No more deploys on Fridays, from now on Tuesday mornings only.",
    ),
    (
        "All exceptions should be caught at the top level and logged.",
        "Scratch that about exceptions: let them propagate, the supervisor logs them.",
    ),
    (
        "The nightly job keeps 14 days of backups.",
        "The nightly job must keep 30 days of backups.",
    ),
    (
        "Stay on numpy 1.26 because of the old wheels.",
        "The wheels are rebuilt, so numpy has to be 2.0 or newer.",
    ),
    (
        "I want an aisle seat on every leg.",
        "Changed my mind, I want a window seat on every leg.",
    ),
    (
        "Antworte mir bitte immer auf Deutsch.",
        "Ab jetzt bitte auf Englisch antworten, der Kollege liest mit.",
    ),
    (
        "每页最多显示20条记录。",
        "每页改成最多显示50条记录。",
    ),
)

FOURTH_COMPANIONS = (
    ("Unit tests go into tests/unit.", "Integration tests go into tests/integration."),
    (
        "The upload limit for images is 4 MB.",
        "The upload limit for videos is 90 MB.",
    ),
    ("Never commit directly to main.", "Never commit files from the build folder."),
    (
        "Log errors as JSON, one object a line.",
        "Don't log anything below warning level in production.",
    ),
    ("Answers in English please.", "Code comments in English as well, please."),
    (
        "The API must answer within 200 ms.",
        "The report job must finish within 10 minutes.",
    ),
    (
        "For the outbound flight I need a window seat.",
        "For the flight home I need two checked bags.",
    ),
    ("Prefer dataclasses over dicts for records.", "Prefer pathlib over os.path for paths."),
    ("Die API-Version bleibt 2.", "Die Schema-Version bleibt 7."),
    ("Ask me before you install anything.", "Ask me before you delete anything."),
)
