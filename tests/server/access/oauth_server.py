"""An authorization server on loopback: its metadata, its keys, and tokens that it signs."""

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm


class OAuthServer:
    """Issues tokens; `rotate` gives it another key."""

    def __init__(self) -> None:
        self.issuer = ""
        self.fetches = 0
        self._count = 0
        self.rotate()

    def rotate(self) -> None:
        """Sign with a new key from now on, and stop publishing the previous key."""
        self._count += 1
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def kid(self) -> str:
        return f"key-{self._count}"

    def token(self, audience: str, *, key: Any = None, kid: str = "", **claims: Any) -> str:
        """Return a token of tenant "acme" with the scopes read and write, changed by `claims`."""
        now = int(time.time())
        given = {
            "iss": self.issuer,
            "aud": audience,
            "sub": "robin",
            "iat": now,
            "exp": now + 300,
            "scope": "read write",
            "tenant": "acme",
        } | claims
        given = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(given, key or self.key, "RS256", headers={"kid": kid or self.kid})

    def answer(self, path: str) -> dict[str, Any] | None:
        if path == "/.well-known/oauth-authorization-server":
            return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}
        if path == "/keys":
            self.fetches += 1
            public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
            return {"keys": [{**public, "kid": self.kid, "alg": "RS256", "use": "sig"}]}
        return None


@contextmanager
def oauth_server() -> Generator[OAuthServer]:
    """Run a server on a free port."""
    oauth = OAuthServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = oauth.answer(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Log no requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        oauth.issuer = f"http://127.0.0.1:{http.server_address[1]}"
        threading.Thread(target=http.serve_forever, daemon=True).start()
        try:
            yield oauth
        finally:
            http.shutdown()
