"""Secrets at rest (DESIGN law 14).

AES-256-GCM under keys from the settings; the first key encrypts, every key decrypts. The row and
field a secret belongs to are authenticated with it, so a ciphertext copied to another row does
not open. Text form: `v1.<key id>.<base64 nonce+ciphertext>`.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


class SecretUnreadable(Exception):
    """No configured key opens the secret, or it belongs to another row."""


class SecretBox:
    """Seals and opens short texts. `keys` are pass phrases, newest first."""

    def __init__(self, keys: Sequence[str]) -> None:
        if not keys:
            raise ValueError("at least one secret key is needed")
        self._keys = [(_key_id(key), AESGCM(_derive(key))) for key in keys]

    def seal(self, text: str, *, bound_to: str) -> str:
        """Encrypt `text` for the place named by `bound_to` (table, row, field)."""
        key_id, cipher = self._keys[0]
        nonce = os.urandom(12)
        sealed = nonce + cipher.encrypt(nonce, text.encode(), bound_to.encode())
        return f"v1.{key_id}.{base64.urlsafe_b64encode(sealed).decode()}"

    def open(self, sealed: str, *, bound_to: str) -> str:
        """Decrypt; raises SecretUnreadable with a message that names the key, not the secret."""
        try:
            version, key_id, body = sealed.split(".", 2)
            raw = base64.urlsafe_b64decode(body)
        except ValueError as error:
            raise SecretUnreadable("not a sealed secret") from error
        if version != "v1":
            raise SecretUnreadable(f"unknown secret format {version}")
        for known, cipher in self._keys:
            if known == key_id:
                try:
                    return cipher.decrypt(raw[:12], raw[12:], bound_to.encode()).decode()
                except InvalidTag as error:
                    raise SecretUnreadable(f"secret does not belong to {bound_to}") from error
        raise SecretUnreadable(f"key {key_id} is not configured")

    def reseal(self, sealed: str, *, bound_to: str) -> str:
        """The same secret under the newest key."""
        return self.seal(self.open(sealed, bound_to=bound_to), bound_to=bound_to)


def _derive(key: str) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt=None, info=b"fulcrum secret box v1").derive(key.encode())


def _key_id(key: str) -> str:
    return hashlib.sha256(b"fulcrum key id" + _derive(key)).hexdigest()[:8]
