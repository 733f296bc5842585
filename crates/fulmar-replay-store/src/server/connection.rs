//! A connection to a server with limits on the time and size of replies.
//!
//! The crate `redis` packs commands and parses replies; its own connection limits neither the total time nor
//! the size of a reply.

use std::io::{self, ErrorKind as IoKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use fulmar_core::{Error, ErrorKind, Result};
use redis::{Parser, Pipeline, ServerError, Value};

use super::StoreStorageOptions;

/// Number of bytes sent at once; the time is checked between such pieces.
const PIECE_BYTES: usize = 1 << 16;

/// A connection that is made on demand, and again after a failure.
pub struct Connection {
    options: StoreStorageOptions,
    stream: Option<TcpStream>,
}

impl Connection {
    pub fn new(options: StoreStorageOptions) -> Self {
        Self { options, stream: None }
    }

    /// Sends `commands` at once and returns their replies. After an error the connection is closed, and the
    /// next call reconnects.
    ///
    /// # Errors
    /// `Io` if there is no server, it does not answer in time, or disconnects; `Forbidden` for a wrong
    /// password; `LimitExceeded` if its replies are too long; `Malformed` for another protocol.
    pub fn ask(&mut self, commands: &Pipeline) -> Result<Vec<Value>> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connected()?,
        };
        let replies = self.exchange(&stream, commands).map_err(|error| error.at(self.options.place()))?;
        self.stream = Some(stream);
        Ok(replies)
    }

    fn connected(&self) -> Result<TcpStream> {
        let Self { options, .. } = self;
        let wait = Duration::from_millis(options.connect_timeout_ms);
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Io, format!("{} must be a server: got {error}", options.place()))
                .because(error)
        };
        let addresses = (&*options.host, options.port).to_socket_addrs().map_err(failed)?;
        let mut last = io::Error::new(IoKind::NotFound, "a name without an address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, wait) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(failed)?;
                    self.introduce(&stream).map_err(|error| error.at(options.place()))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// Sends the user and the database.
    fn introduce(&self, stream: &TcpStream) -> Result<()> {
        let mut commands = redis::pipe();
        if let Some(password) = &self.options.password {
            let command = commands.cmd("AUTH");
            if let Some(username) = &self.options.username {
                command.arg(username);
            }
            command.arg(password);
        }
        commands.cmd("SELECT").arg(self.options.db);
        self.exchange(stream, &commands)?.into_iter().try_for_each(|reply| checked(reply).map(|_| ()))
    }

    fn exchange(&self, stream: &TcpStream, commands: &Pipeline) -> Result<Vec<Value>> {
        let until = Instant::now() + Duration::from_millis(self.options.timeout_ms);
        let timed = |error: io::Error| broken(error, self.options.timeout_ms);
        let mut out = stream;
        for piece in commands.get_packed_pipeline().chunks(PIECE_BYTES) {
            let left = left_of(until).map_err(timed)?;
            out.set_write_timeout(Some(left)).and_then(|()| out.write_all(piece)).map_err(timed)?;
        }
        let mut replies = Vec::with_capacity(commands.len());
        let mut reader = BoundedReader { stream, until, left: self.options.reply_bytes_max, failed: None };
        let mut parser = Parser::new();
        for _ in 0..commands.len() {
            let parsed = parser.parse_value(&mut reader);
            match (parsed, reader.failed.take()) {
                (Ok(reply), _) => replies.push(reply),
                (Err(_), Some(error)) if error.kind() == IoKind::FileTooLarge => {
                    let detail =
                        format!("replies must take at most {} bytes in all", self.options.reply_bytes_max);
                    return Err(Error::new(ErrorKind::LimitExceeded, detail));
                }
                (Err(_), Some(error)) => return Err(timed(error)),
                (Err(error), None) => {
                    return Err(Error::new(
                        ErrorKind::Malformed,
                        format!("replies must be those of Redis: got {error}"),
                    ));
                }
            }
        }
        Ok(replies)
    }
}

/// Returns the time left until `until`.
fn left_of(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(IoKind::TimedOut.into()) } else { Ok(left) }
}

fn broken(error: io::Error, timeout_ms: u64) -> Error {
    let detail = match error.kind() {
        IoKind::TimedOut | IoKind::WouldBlock => {
            format!("the server must answer within {timeout_ms} ms: got no more")
        }
        IoKind::UnexpectedEof => "the connection must last to the end of a reply: got its end".to_owned(),
        _ => format!("the connection must last to the end of a reply: got {error}"),
    };
    Error::new(ErrorKind::Io, detail).because(error)
}

/// Reads until a deadline, and a limited number of bytes.
struct BoundedReader<'a> {
    stream: &'a TcpStream,
    until: Instant,
    left: usize,
    /// The error that ended reading.
    failed: Option<io::Error>,
}

impl BoundedReader<'_> {
    fn some(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(IoKind::FileTooLarge.into());
        }
        self.stream.set_read_timeout(Some(left_of(self.until)?))?;
        let end = bytes.len().min(self.left);
        let count = self.stream.read(&mut bytes[..end])?;
        self.left -= count;
        if count == 0 && end > 0 { Err(IoKind::UnexpectedEof.into()) } else { Ok(count) }
    }
}

impl Read for BoundedReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.some(bytes).inspect_err(|error| self.failed = Some(error.kind().into()))
    }
}

/// Returns a reply that is not an error.
///
/// # Errors
/// `Forbidden` if the server requires another user; `Incompatible` if a key has another type; `Io` for every
/// other error reply.
pub fn checked(reply: Value) -> Result<Value> {
    match reply {
        Value::ServerError(refusal) => Err(refused(&refusal)),
        reply => Ok(reply),
    }
}

fn refused(refusal: &ServerError) -> Error {
    let said = format!("{} {}", refusal.code(), refusal.details().unwrap_or_default());
    let (kind, rule) = match refusal.code() {
        "NOAUTH" | "WRONGPASS" | "NOPERM" => {
            (ErrorKind::Forbidden, "username and password must be those of the server")
        }
        "WRONGTYPE" => (ErrorKind::Incompatible, "keys of that name must be those of a storage"),
        _ => (ErrorKind::Io, "the server must take the command"),
    };
    Error::new(kind, format!("{rule}: got {}", said.trim_end()))
}
