"""A labelled set of secrets, generated from a fixed seed so that no file contains a possible key.

Tokens have the forms that their providers document, in places where agents meet them. Lines show
how programs and people write passwords.
"""

import json
import random
import re
import string

from context_compaction.find_secrets import find_secrets

SEED = 20_261_122
ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "d": string.digits,
    "f": "0123456789abcdef",
    "l": string.ascii_lowercase + string.digits,
    "q": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "u": string.ascii_uppercase + string.digits,
    "w": "".join((string.ascii_letters, string.digits, "_-")),
}

# Texts in which a secret has a label.
PLACES = (
    "export {name}={secret}",
    "{name}: {secret}",
    '  "{name}": "{secret}",',
    "{name} = '{secret}'  # for the staging server",
    "2026-11-03T10:12:44Z DEBUG request with {name}={secret} took 12 ms",
    json.dumps({"command": 'echo "{name}={secret}" >> .env'}),
)
# Texts without a label, for secrets that their form alone reveals.
UNLABELLED_PLACES = (
    "I put the key {secret} into the vault, please use it from there.",
    "({secret}), as agreed",
)

# Kind: name and form, in which `<a20>` is twenty signs of an alphabet. The forms come from the
# documentation of the providers, not from the rules. "*" marks a form that alone reveals a secret.
TOKENS = {
    "age": ("AGE_KEY", "*AGE-SECRET-KEY-1<q58>"),
    "airtable": ("AIRTABLE_PAT", "*pat<a14>.<f64>"),
    "algolia": ("ALGOLIA_API_KEY", "<f32>"),
    "anthropic": ("ANTHROPIC_API_KEY", "*sk-ant-api03-<w93>AA"),
    "anthropic oauth": ("CLAUDE_CODE_OAUTH_TOKEN", "*sk-ant-oat01-<w86>-<w6>AA"),
    "atlassian": ("JIRA_TOKEN", "*ATATT3xFfGF0<w180>=<u8>"),
    "aws key id": ("AWS_ACCESS_KEY_ID", "*AKIA<q16>"),
    "aws secret": ("aws_secret_access_key", "<a40>"),
    "azure storage": ("conn", "*AccountName=acc;AccountKey=<a86>=="),
    "azure client": ("AZURE_CLIENT_SECRET", "*<a3>8Q~<a34>"),
    "bearer": ("Authorization", "*Bearer <a48>"),
    "bitbucket": ("BITBUCKET_APP", "*ATBB<a32>"),
    "buildkite": ("BUILDKITE_TOKEN", "*bkua_<f40>"),
    "circleci": ("CIRCLE_TOKEN", "*CCIPAT_<a22>_<f40>"),
    "cloudflare": ("CF_API_TOKEN", "<w40>"),
    "databricks": ("DATABRICKS_TOKEN", "*dapi<f32>"),
    "datadog": ("DD_API_KEY", "<f32>"),
    "digitalocean": ("DO_TOKEN", "*dop_v1_<f64>"),
    "discord bot": ("discord_bot", "M<a23>.<a6>.<a27>"),
    "artifactory": ("artifactory_user", "AKC<a20>"),
    "twilio account": ("TWILIO_ACCOUNT_SID", "AC<f32>"),
    "docker hub": ("DOCKER_PAT", "*dckr_pat_<w27>"),
    "doppler": ("DOPPLER_TOKEN", "*dp.pt.<a43>"),
    "figma": ("FIGMA", "*figd_<w40>"),
    "fly": ("FLY_API_TOKEN", "*FlyV1 fm2_<a160>"),
    "github": ("GITHUB_TOKEN", "*ghp_<a36>"),
    "github app": ("GH_TOKEN", "*ghs_<a36>"),
    "github fine": ("GITHUB_PAT", "*github_pat_<a22>_<a59>"),
    "gitlab": ("GITLAB_TOKEN", "*glpat-<w20>"),
    "google": ("GOOGLE_API_KEY", "*AIza<w35>"),
    "google oauth": ("client_secret", "*GOCSPX-<w28>"),
    "grafana": ("GRAFANA_TOKEN", "*glsa_<a32>_<f8>"),
    "groq": ("GROQ_API_KEY", "*gsk_<a52>"),
    "heroku": ("HEROKU_API_KEY", "<f8>-<f4>-<f4>-<f4>-<f12>"),
    "hugging face": ("HF_TOKEN", "*hf_<a34>"),
    "jwt": ("session", "*eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI<a20>.<w43>"),
    "langsmith": ("LANGSMITH_API_KEY", "*lsv2_pt_<f32>_<f10>"),
    "linear": ("LINEAR_KEY", "*lin_api_<a40>"),
    "mailchimp": ("MAILCHIMP", "*<f32>-us12"),
    "mailgun": ("MAILGUN", "*key-<f32>"),
    "mapbox": ("MAPBOX_ACCESS_TOKEN", "sk.eyJ1Ijoi<a60>.<a22>"),
    "mistral": ("MISTRAL_API_KEY", "<a32>"),
    "netlify": ("NETLIFY", "*nfp_<a36>"),
    "new relic": ("NEW_RELIC", "*NRAK-<u27>"),
    "notion": ("NOTION_TOKEN", "*ntn_<d11><a35>"),
    "npm": ("NPM_TOKEN", "*npm_<a36>"),
    "nuget": ("NUGET", "*oy2<l43>"),
    "okta": ("OKTA_API_TOKEN", "00<w40>"),
    "openai": ("OPENAI_API_KEY", "*sk-proj-<w74>T3BlbkFJ<w74>"),
    "openai old": ("OPENAI_API_KEY", "*sk-<a20>T3BlbkFJ<a20>"),
    "openrouter": ("OPENROUTER_API_KEY", "*sk-or-v1-<f64>"),
    "pinecone": ("PINECONE", "*pcsk_<a6>_<a63>"),
    "planetscale": ("PSCALE", "*pscale_tkn_<w43>"),
    "postman": ("POSTMAN", "*PMAK-<f24>-<f34>"),
    "pypi": ("TWINE_PASSWORD", "*pypi-AgEIcHlwaS5vcmc<w100>"),
    "replicate": ("REPLICATE", "*r8_<a37>"),
    "resend": ("RESEND", "*re_<a8>_<a24>"),
    "rubygems": ("GEM_HOST_API_KEY", "*rubygems_<f48>"),
    "sendgrid": ("SENDGRID", "*SG.<w22>.<w43>"),
    "sentry": ("SENTRY_AUTH", "*sntryu_<f64>"),
    "shopify": ("SHOPIFY", "*shpat_<f32>"),
    "slack": ("SLACK_BOT_TOKEN", "*xoxb-<d12>-<d13>-<a24>"),
    "slack app": ("SLACK_APP", "*xapp-1-A<u10>-<d13>-<f64>"),
    "slack hook": ("hook", "*https://hooks.slack.com/services/T<u10>/B<u10>/<a24>"),
    "sonar": ("SONAR", "*sqp_<f40>"),
    "square": ("SQUARE", "*sq0atp-<w22>"),
    "stripe": ("STRIPE_KEY", "*sk_live_<a24>"),
    "supabase": ("SUPABASE", "*sbp_<f40>"),
    "tailscale": ("TS_AUTHKEY", "*tskey-auth-<a16>-<a32>"),
    "tavily": ("TAVILY", "*tvly-dev-<a32>"),
    "telegram": ("BOT", "*<d10>:AA<w33>"),
    "terraform": ("TFE", "*<a14>.atlasv1.<w67>"),
    "twilio": ("TWILIO_API_KEY", "*SK<f32>"),
    "vault": ("VAULT_TOKEN", "*hvs.<w95>"),
    "xai": ("XAI", "*xai-<a80>"),
}
# Kind: a line with the secret between [[ and ]].
LINES = {
    "basic header": "curl -H 'Authorization: Basic [[bWU6<a20>]]' https://x.internal",
    "cookie": "Cookie: theme=dark; [[sessionid=<l32>]]",
    "curl user": "curl -u admin:[[<a14>]] https://x.internal/",
    "discord hook": "https://discord.com/api/webhooks/[[<d18>/<w68>]]",
    "docker config": '{"auths":{"r.io":{"auth":"[[<a40>]]"}}}',
    "docker login": "docker login -u me -p [[<a14>]] r.io",
    "flag": "deploy --user me --password [[<a14>]] --yes",
    "htpasswd": "me:$apr1$[[<a8>$<a22>]]",
    "maven": "<server><password>[[<a14>]]</password></server>",
    "mysql": "mysqldump -h db -u root -p[[<a14>]] shop",
    "netrc": "machine x.internal login me password [[<a14>]]",
    "odbc": "Server=db;Uid=app;Pwd=[[<a14>]];",
    "pgpass": "db.internal:5432:app:admin:[[<a14>]]",
    "private key": "-----BEGIN EC PRIVATE KEY-----\n[[<a64>\n<a64>]]\n-----END EC PRIVATE KEY-----",
    "redis": "redis-cli -h cache -a [[<a14>]] ping",
    "sas": "https://acc.blob.core.windows.net/c?sv=2024&sig=[[<a43>%3D]]",
    "sentry dsn": "https://[[<f32>]]@o1.ingest.sentry.io/12",
    "set-cookie": "Set-Cookie: session=[[<a40>]]; Path=/",
    "shadow": "root:$6$[[<a16>$<a86>]]:19000:0:99999:7:::",
    "sshpass": "sshpass -p [[<a12>]] ssh me@x",
    "told in English": "The password is [[<a12>]] for now.",
    "told in French": "Le mot de passe est [[<a12>]]",
    "told in German": "Passwort: [[<a12>]]",
    "told in Spanish": "contraseña: [[<a12>]]",
    "told in Russian": "пароль: [[<a12>]]",
    "url": "postgres://app:[[<a16>]]@db.internal:5432/main",
    "wireguard": "PrivateKey = [[<a43>=]]",
}


def labelled() -> list[tuple[str, str, str]]:
    """Return kind, text and secret of each case."""
    rng = random.Random(SEED)

    def filled(form: str) -> str:
        def signs(found: re.Match[str]) -> str:
            return "".join(rng.choice(ALPHABETS[found[1]]) for _ in range(int(found[2])))

        return re.sub(r"<([a-z])(\d+)>", signs, form)

    cases: list[tuple[str, str, str]] = []
    for kind, (name, form) in TOKENS.items():
        for place in (*PLACES, *(UNLABELLED_PLACES if form[0] == "*" else ())):
            secret = filled(form.lstrip("*"))
            cases.append((kind, place.replace("{name}", name).replace("{secret}", secret), secret))
    for kind, line in LINES.items():
        for _ in range(4):
            before, secret, after = re.split(r"\[\[|\]\]", filled(line))
            cases.append((kind, before + secret + after, secret))
    return cases


def is_found(text: str, secret: str) -> bool:
    """Whether none of the last 12 characters of the secret is left."""
    at = text.index(secret) + len(secret.rstrip("=")) - 12
    return any(found.start <= at and at + 12 <= found.stop for found in find_secrets(text))
