//! Options of a storage on a server.

use fulmar_core::limits::STORE_REPLY_BYTES_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Options of a [`StoreStorage`](crate::StoreStorage).
///
/// # Examples
/// ```
/// use fulmar_replay_store::StoreStorageOptions;
/// let options = StoreStorageOptions { name: "experience".to_owned(), ..Default::default() };
/// assert_eq!((&*options.host, options.port, options.timeout_ms), ("127.0.0.1", 6379, 10_000));
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StoreStorageOptions {
    /// The server's name or address. Defaults to `127.0.0.1`.
    pub host: String,
    /// The server's port. Defaults to 6379.
    pub port: u16,
    /// The number of its database. Defaults to 0.
    pub db: u32,
    /// The key of the storage, and the prefix, followed by a colon, of the keys of its rows and writes.
    /// Defaults to `fulmar`.
    pub name: String,
    /// The user, if it is not the default one.
    pub username: Option<String>,
    /// The password, if the server requires one. It is sent in clear text: there is no TLS.
    pub password: Option<String>,
    /// Timeout of connecting, in milliseconds. Defaults to 5,000.
    pub connect_timeout_ms: u64,
    /// Timeout of an operation from its first to its last byte, in milliseconds. Defaults to 10,000.
    pub timeout_ms: u64,
    /// Maximum number of bytes in the replies to one operation, so also of a batch. Defaults to
    /// [`STORE_REPLY_BYTES_MAX`].
    pub reply_bytes_max: usize,
}

impl Default for StoreStorageOptions {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 6379,
            db: 0,
            name: "fulmar".to_owned(),
            username: None,
            password: None,
            connect_timeout_ms: 5_000,
            timeout_ms: 10_000,
            reply_bytes_max: STORE_REPLY_BYTES_MAX,
        }
    }
}

impl std::fmt::Debug for StoreStorageOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreStorageOptions").field("place", &self.place()).finish_non_exhaustive()
    }
}

impl StoreStorageOptions {
    /// Returns the place of the rows for messages, without the password.
    pub(super) fn place(&self) -> String {
        format!("redis://{}:{}/{}#{}", self.host, self.port, self.db, self.name)
    }

    pub(super) fn check(&self) -> Result<()> {
        for (field, text) in [("host", &self.host), ("name", &self.name)] {
            if text.is_empty() {
                return Err(Error::new(ErrorKind::Empty, format!("{field} must not be empty")));
            }
        }
        let counts = [
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("timeout_ms", self.timeout_ms),
            ("reply_bytes_max", self.reply_bytes_max as u64),
        ];
        match counts.into_iter().find(|(_, count)| *count == 0) {
            None => Ok(()),
            Some((field, _)) => {
                Err(Error::new(ErrorKind::OutOfRange, format!("{field} must be >= 1: got 0")))
            }
        }
    }
}
