"""Encrypts the secrets of access keys, so that the database, its dumps and its backups do not reveal them.

The sealing key is in the environment variable CAFCAT_SEAL_KEY, else in the file `seal.key` of the home.
"""

import base64
import binascii
import os
from pathlib import Path
from typing import Final

from cafcat.errors import Corrupt, InvalidInput, NotFound, NotInstalled
from cafcat.support.new_file import new_file, write_all
from cafcat.support.private import PRIVATE_FILE, PRIVATE_FOLDER, give_to_owner
from cafcat.support.syncing import sync_file

__all__ = ["SEAL_KEY_VARIABLE", "Seal", "has_seal", "seal_of"]

SEAL_KEY_VARIABLE: Final = "CAFCAT_SEAL_KEY"
"""Environment variable with the sealing key."""
_FILE: Final = "seal.key"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class Seal:
    """Encrypts and decrypts secrets with AES-256-GCM.

    A sealed secret is bound to the name and the folder of its access key. A row of the database whose folder was
    changed can therefore not be unsealed.
    """

    def __init__(self, key: bytes) -> None:
        """Create a seal.

        Args:
            key: The sealing key, 32 bytes.

        Raises:
            NotInstalled: The package cryptography is missing.
        """
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            message = "access keys need the package cryptography, which is not installed"
            raise NotInstalled(message, hint=NotInstalled.remedy("serve")) from error
        self._cipher = AESGCM(key)

    def seal(self, secret: str, access_key_id: str, prefix: str) -> bytes:
        """Return an encrypted secret.

        Args:
            secret: The secret.
            access_key_id: Name of the access key.
            prefix: Folder that the access key can read.
        """
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, secret.encode(), _owner(access_key_id, prefix))

    def unseal(self, sealed: bytes, access_key_id: str, prefix: str) -> str:
        """Return the secret that was sealed for this access key and this folder.

        Raises:
            Corrupt: It was sealed with another sealing key, or the row of the access key was changed.
        """
        from cryptography.exceptions import InvalidTag

        nonce, encrypted = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, encrypted, _owner(access_key_id, prefix)).decode()
        except (InvalidTag, ValueError) as error:
            message = f"the secret of access key {access_key_id} cannot be unsealed with this sealing key"
            hint = f"set {SEAL_KEY_VARIABLE}, or the home, to that of `cafcat keys add`"
            raise Corrupt(message, hint=hint) from error


def _owner(access_key_id: str, prefix: str) -> bytes:
    return f"{access_key_id}\n{prefix}".encode()


def seal_of(home: Path, *, create: bool = False) -> Seal:
    """Return the seal of the environment or of a home.

    Args:
        home: The folder with the file of the sealing key.
        create: True to create a missing file with a random key.

    Raises:
        NotFound: There is no sealing key, and `create` is false.
        InvalidInput: The sealing key is not 32 bytes in base64, or its file cannot be read or created.
        NotInstalled: The package cryptography is missing.
    """
    given = os.environ.get(SEAL_KEY_VARIABLE)
    if given:
        return Seal(_decoded(given, SEAL_KEY_VARIABLE))
    path = home / _FILE
    try:
        if create and not path.exists():
            _create(path)
        return Seal(_decoded(path.read_text("ascii"), str(path)))
    except FileNotFoundError as error:
        hint = f"run `cafcat keys add` with this home, or set {SEAL_KEY_VARIABLE}"
        raise NotFound("the sealing key of the access keys is missing", path=str(path), hint=hint) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the sealing key cannot be read or created: {error}", path=str(path)) from error


def has_seal(home: Path) -> bool:
    """Return True if the environment or a home has a sealing key, valid or not."""
    return bool(os.environ.get(SEAL_KEY_VARIABLE)) or (home / _FILE).exists()


def _decoded(text: str, origin: str) -> bytes:
    try:
        key = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise InvalidInput(f"{origin} is not a sealing key: it must have {_KEY_BYTES} bytes in base64")
    return key


def _create(path: Path) -> None:
    """Create the file of the sealing key, which only its owner can read. Another process may have been faster."""
    path.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        new = new_file(folder, PRIVATE_FILE)
        try:
            write_all(new.descriptor, base64.urlsafe_b64encode(os.urandom(_KEY_BYTES)) + b"\n")
            give_to_owner(new.descriptor, folder)
            sync_file(new.descriptor)
            new.take_name(path.name, overwrite=False)
        except FileExistsError:
            pass
        finally:
            new.discard()
        os.fsync(folder)
    finally:
        os.close(folder)
