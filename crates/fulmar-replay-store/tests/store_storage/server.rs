//! Servers that tests start and stop: Debian's `redis-server`, and fake ones.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use fulmar_replay_store::StoreStorageOptions;

/// A server for one test, on the loopback, without persistence.
pub struct Server {
    child: Child,
    pub port: u16,
    folder: PathBuf,
}

/// The outcome of a start on one port.
pub enum Start {
    Ready(Server),
    /// The program ended before it was ready, as it does if the port is taken.
    Ended,
    NotInstalled,
}

impl Server {
    /// Starts a server with these further arguments. `None` if the program is not installed: the test is
    /// counted as skipped, or fails if `CI` is set, which installs it.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        // A free port may be taken by another before the server has it.
        let mut starts = (0..10).map(|_| Self::start_on(free_port(), arguments));
        let start = starts.find(|start| !matches!(start, Start::Ended));
        assert!(start.is_some(), "redis-server must become ready, and ended on ten ports");
        if let Some(Start::Ready(server)) = start {
            return Some(server);
        }
        assert!(std::env::var_os("CI").is_none(), "redis-server must be installed where CI is set");
        // Not `eprintln!`, whose output a passing test hides. `npm test` counts these lines.
        let name = thread::current().name().unwrap_or_default().to_owned();
        let _ = writeln!(std::io::stderr(), "\nSKIPPED: {name}: redis-server is not installed");
        None
    }

    /// Starts a server on one port.
    pub fn start_on(port: u16, arguments: &[&str]) -> Start {
        let folder = std::env::temp_dir().join(format!("fulmar-redis-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let started = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(&folder)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "redis-server must start: {error}");
                return Start::NotInstalled;
            }
        };
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ready to accept"));
        // Later output must not fill the pipe.
        thread::spawn(move || lines.map_while(Result::ok).count());
        let server = Self { child, port, folder };
        if is_ready { Start::Ready(server) } else { Start::Ended }
    }

    pub fn options(&self) -> StoreStorageOptions {
        StoreStorageOptions { port: self.port, ..Default::default() }
    }

    /// Sends a command and waits for its reply.
    pub fn tell(&self, command: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut reply = [0; 64];
        let count = stream.read(&mut reply).unwrap();
        assert!(count > 0 && reply[0] != b'-', "{command}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a proxy that closes every connection after a number of bytes in each direction.
pub fn cutting(port: u16, asked: usize, told: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { break };
            let pairs = [
                (client.try_clone(), server.try_clone(), asked),
                (server.try_clone(), client.try_clone(), told),
            ];
            for (from, to, limit) in pairs {
                let (from, mut to) = (from.unwrap(), to.unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from.try_clone().unwrap().take(limit as u64), &mut to);
                    let _ = from.shutdown(std::net::Shutdown::Both);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    own
}

/// Returns a server that answers everything with `reply`, and then ends or stays silent.
pub fn saying(reply: Vec<u8>, is_silent: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for mut client in listener.incoming().map_while(Result::ok) {
            let _ = client.read(&mut [0; 1024]);
            let _ = client.write_all(&reply);
            if is_silent {
                kept.push(client);
            }
        }
    });
    port
}
