//! Redis, and servers with the same protocol.
//!
//! zarr-python keeps a value as a string with the key `PREFIX:KEY`. All requests share two connections, so
//! that requests for names do not wait behind long values. A lost connection is opened again.
//!
//! - A value comes with one GETRANGE, for one byte more than the longest value that is accepted.
//! - Keys come from SCAN, which returns every key that exists during the whole scan. All calls of a scan use
//!   one connection: a server that was restarted does not know the cursors of an earlier one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, RedisError, ServerErrorKind, TlsCertificates, Value,
};
use tokio::sync::Mutex;

use super::url::{Address, RedisUrl};
use super::{KeyLookup, KeyValueClient, KeyValueOptions, Keys, ReadValue, TRAITS, source};
use crate::clock::Instant;
use crate::store::remote::protocol::options::RemoteOptions;
use crate::store::remote::protocol::web::TlsOptions;
use crate::store::remote::protocol::{Location, Protocol};
use crate::store::remote::request::{Failed, FailureKind, Refusal, Remote, RequestError};
use crate::store::{Key, KeyClasses};

/// Number of keys that one SCAN call examines.
const SCAN_COUNT: usize = 10_000;

/// The protocol of Redis. `unix` is the scheme of redis-py for a socket.
pub(in crate::store::remote) const PROTOCOL: Protocol = Protocol {
    schemes: &["redis", "rediss", "redis+unix", "unix"],
    example: "redis://HOST/0?prefix=PREFIX",
    traits: TRAITS,
    parse: |url, variable| RedisUrl::parse(url, variable).map(|url| Box::new(url) as _),
    denied: |_| {
        " (credentials come from REDIS_PASSWORD and REDIS_USERNAME in the environment or in --env-file, or from \
         the URL)"
    },
};

impl Location for RedisUrl {
    fn label(&self) -> String {
        RedisUrl::label(self)
    }

    fn nothing_there(&self, _documents: &[&str]) -> String {
        format!(
            "no key of database {} begins with `{}:` (are database and prefix right?)",
            self.database, self.prefix
        )
    }

    fn open(
        &self,
        options: &RemoteOptions,
        classes: KeyClasses,
    ) -> Result<Arc<dyn Remote>, String> {
        let client = Redis::new(self, options.timeout, &options.tls)?;
        Ok(source(client, KeyValueOptions::new(options, classes)))
    }
}

/// A database of Redis.
#[derive(Debug)]
pub(super) struct Redis {
    names: Connection,
    values: Connection,
    /// The prefix of every key of the store.
    prefix: Vec<u8>,
}

/// A connection that is opened at its first use, and again after it was lost.
struct Connection {
    client: Client,
    timeout: Duration,
    open: Mutex<Option<(u64, MultiplexedConnection)>>,
    opened: AtomicU64,
}

impl fmt::Debug for Connection {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// A request without a reply yet. If no reply comes within the time limit, the connection is closed.
struct Waiting<'a> {
    connection: &'a Connection,
    number: u64,
    since: Instant,
    is_answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.since.elapsed() >= self.connection.timeout / 2 {
            self.connection.discard(self.number);
        }
    }
}

impl Connection {
    fn new(client: Client, timeout: Duration) -> Self {
        Self {
            client,
            timeout,
            open: Mutex::default(),
            opened: AtomicU64::new(0),
        }
    }

    /// Returns the open connection and its number, connecting if necessary.
    async fn get(&self) -> Result<(u64, MultiplexedConnection), RequestError> {
        let mut open = self.open.lock().await;
        if let Some(open) = &*open {
            return Ok(open.clone());
        }
        // No timeouts here: the caller has a deadline, and drops this future then.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let connect = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let connection = connect.await.map_err(|error| not_connected(&error))?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        *open = Some((number, connection.clone()));
        Ok((number, connection))
    }

    /// Drops a lost connection; requests that wait for replies keep it.
    fn discard(&self, number: u64) {
        // If the lock is taken, its holder is opening another connection.
        if let Ok(mut open) = self.open.try_lock()
            && open.as_ref().is_some_and(|(open, _)| *open == number)
        {
            *open = None;
        }
    }

    /// Sends commands; each reply may be an error.
    async fn send(
        &self,
        (number, connection): &mut (u64, MultiplexedConnection),
        commands: &Pipeline,
    ) -> Result<Vec<Value>, RequestError> {
        let mut waiting = Waiting {
            connection: self,
            number: *number,
            since: Instant::now(),
            is_answered: false,
        };
        let replies = connection
            .send_packed_commands(commands, 0, commands.len())
            .await;
        waiting.is_answered = true;
        replies.map_err(|error| {
            self.discard(*number);
            failed(&error)
        })
    }

    /// Sends commands; fails if any of them fails.
    async fn ask(&self, commands: &Pipeline) -> Result<Vec<Value>, RequestError> {
        let mut connection = self.get().await?;
        let replies = self.send(&mut connection, commands).await?;
        let replies = replies.into_iter().map(Value::extract_error);
        replies
            .collect::<Result<_, _>>()
            .map_err(|error| failed(&error))
    }
}

fn not_connected(error: &RedisError) -> RequestError {
    match failed(error) {
        RequestError::Failed(mut failed) if error.is_io_error() && !error.is_timeout() => {
            failed.kind = FailureKind::Unreachable;
            RequestError::Failed(failed)
        }
        failed => failed,
    }
}

/// Converts an error of the server or of the connection; no error proves absence.
fn failed(error: &RedisError) -> RequestError {
    let what = error.to_string();
    let refused = |what| RequestError::Denied(Refusal { what, status: None });
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) => {
            refused("the server knows no such user and password".into())
        }
        (ErrorKind::Server(ServerErrorKind::NoPerm), _)
        | (_, Some("NOAUTH" | "WRONGPASS" | "DENIED")) => refused(what),
        (
            ErrorKind::Io
            | ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown,
            ),
            _,
        )
        | (_, Some("BUSY")) => RequestError::transient(what),
        (ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask), _) => {
            RequestError::lasting(format!("clusters of Redis are not supported: {what}"))
        }
        (_, Some("WRONGTYPE")) => RequestError::lasting(format!("it is no string: {what}")),
        _ if what.contains("max number of clients") => RequestError::Failed(Failed {
            what,
            kind: FailureKind::Throttled,
            is_transient: true,
            ..Failed::default()
        }),
        _ => RequestError::lasting(what),
    }
}

fn unexpected(command: &str) -> RequestError {
    RequestError::lasting(format!(
        "what the server replies to {command} cannot be understood"
    ))
}

/// Parses the reply to a counting command.
fn count(reply: Option<&Value>, command: &str) -> Result<u64, RequestError> {
    match reply {
        Some(Value::Int(count)) => u64::try_from(*count).map_err(|_| unexpected(command)),
        _ => Err(unexpected(command)),
    }
}

/// Returns a glob pattern for keys that begin with `prefix`.
fn pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for byte in prefix {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^' | b'-') {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.push(b'*');
    pattern
}

impl Redis {
    /// Creates a client of a database; it connects with the first request.
    ///
    /// # Errors
    /// The reason why it can never connect.
    pub(super) fn new(url: &RedisUrl, timeout: Duration, tls: &TlsOptions) -> Result<Self, String> {
        let mut trusted = None;
        let address = match url.address.clone() {
            Address::Unix(path) => ConnectionAddr::Unix(path),
            Address::Tcp {
                host,
                port,
                is_tls: false,
            } => ConnectionAddr::Tcp(host, port),
            Address::Tcp { host, port, .. } => {
                trusted = Some(TlsCertificates {
                    client_tls: None,
                    root_cert: Some(tls.pem()?),
                });
                ConnectionAddr::TcpTls {
                    host,
                    port,
                    insecure: false,
                    tls_params: None,
                }
            }
        };
        let mut login = RedisConnectionInfo::default()
            .set_db(url.database)
            .set_skip_set_lib_name();
        if let Some(user) = &url.user {
            login = login.set_username(user);
        }
        if let Some(password) = &url.password {
            login = login.set_password(password);
        }
        let info = address.into_connection_info().map_err(|e| e.to_string())?;
        let info = info
            .set_redis_settings(login)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = match trusted {
            Some(trusted) => Client::build_with_tls(info, trusted),
            None => Client::open(info),
        };
        let client = client.map_err(|e| e.to_string())?;
        Ok(Self {
            names: Connection::new(client.clone(), timeout),
            values: Connection::new(client, timeout),
            prefix: [url.prefix.as_bytes(), b":"].concat(),
        })
    }

    fn name(&self, key: &Key) -> Vec<u8> {
        [&self.prefix, key.as_bytes()].concat()
    }

    async fn scan(&self, keys: &mut Keys) -> Result<(), RequestError> {
        let pattern = pattern(&self.prefix);
        let scan = |commands: &mut Pipeline, cursor: u64| {
            let scan = commands.cmd("SCAN").arg(cursor);
            scan.arg("MATCH")
                .arg(&pattern[..])
                .arg("COUNT")
                .arg(SCAN_COUNT);
        };
        let mut connection = self.names.get().await?;
        let mut found: Vec<Vec<u8>> = Vec::new();
        let mut next = Some(0);
        while !found.is_empty() || next.is_some() {
            // Requests the sizes of the last keys together with the next keys.
            let mut commands = redis::pipe();
            for name in &found {
                commands.cmd("STRLEN").arg(&name[..]);
            }
            if let Some(cursor) = next {
                scan(&mut commands, cursor);
            }
            let mut replies = self.names.send(&mut connection, &commands).await?;
            let scanned = next.and_then(|_| replies.pop());
            if replies.len() != found.len() {
                return Err(unexpected("STRLEN"));
            }
            for (name, reply) in found.iter().zip(replies) {
                let key = name
                    .strip_prefix(&self.prefix[..])
                    .ok_or_else(|| unexpected("SCAN"))?;
                keys.add(key, size_of(reply)?)?;
            }
            (next, found) = match scanned {
                Some(reply) => cursor_and_keys(reply)?,
                None => (None, Vec::new()),
            };
        }
        log::debug!("{} keys were read", keys.len());
        Ok(())
    }
}

/// Parses the size in a reply to STRLEN; `None` if a lookup has to find it out. A key that is gone by now
/// has size 0 too, and a key that is no string has none.
fn size_of(reply: Value) -> Result<Option<u64>, RequestError> {
    match reply.extract_error() {
        Ok(reply) => Ok(Some(count(Some(&reply), "STRLEN")?).filter(|size| *size > 0)),
        Err(error) if error.code() == Some("WRONGTYPE") => Ok(None),
        Err(error) => Err(failed(&error)),
    }
}

/// Parses the reply to SCAN: the next cursor, `None` at the end, and the keys.
fn cursor_and_keys(reply: Value) -> Result<(Option<u64>, Vec<Vec<u8>>), RequestError> {
    let reply = reply.extract_error().map_err(|error| failed(&error))?;
    let read = redis::from_redis_value::<(u64, Vec<Vec<u8>>)>(reply);
    let (cursor, keys) = read.map_err(|_| unexpected("SCAN"))?;
    Ok((Some(cursor).filter(|cursor| *cursor != 0), keys))
}

impl KeyValueClient for Redis {
    fn find<'a>(
        &'a self,
        key: &'a Key,
        below: &'a [Key],
    ) -> BoxFuture<'a, Result<KeyLookup, RequestError>> {
        async move {
            let name = self.name(key);
            let mut commands = redis::pipe();
            commands.cmd("STRLEN").arg(&name[..]);
            commands.cmd("EXISTS").arg(&name[..]);
            for key in below {
                commands.cmd("EXISTS").arg(self.name(key));
            }
            let replies = self.names.ask(&commands).await?;
            let size_bytes = count(replies.first(), "STRLEN")?;
            let exists = count(replies.get(1), "EXISTS")? > 0;
            let mut first = None;
            for place in 0..below.len() {
                let exists = count(replies.get(place + 2), "EXISTS")? > 0;
                first = first.or(exists.then_some(place));
            }
            Ok(KeyLookup {
                size_bytes: (exists || size_bytes > 0).then_some(size_bytes),
                below: first,
            })
        }
        .boxed()
    }

    fn value<'a>(
        &'a self,
        key: &'a Key,
        most: u64,
    ) -> BoxFuture<'a, Result<Option<ReadValue>, RequestError>> {
        async move {
            let name = self.name(key);
            let last = i64::try_from(most).unwrap_or(i64::MAX);
            let mut commands = redis::pipe();
            commands.cmd("GETRANGE").arg(&name[..]).arg(0).arg(last);
            commands.cmd("EXISTS").arg(&name[..]);
            commands.cmd("STRLEN").arg(&name[..]);
            let mut replies = self.values.ask(&commands).await?;
            let exists = count(replies.get(1), "EXISTS")? > 0;
            let size_bytes = count(replies.get(2), "STRLEN")?;
            let Value::BulkString(bytes) = replies.swap_remove(0) else {
                return Err(unexpected("GETRANGE"));
            };
            match (bytes.len() as u64, exists) {
                (0, false) => Ok(None),
                // The value was written after GETRANGE, which found nothing.
                (0, true) if size_bytes > 0 => {
                    Err(RequestError::transient("it was written while it was read"))
                }
                (length, _) if length > most => {
                    let size_bytes = size_bytes.max(length);
                    Ok(Some(ReadValue::TooLong(size_bytes)))
                }
                _ => Ok(Some(ReadValue::Value(bytes))),
            }
        }
        .boxed()
    }

    fn keys<'a>(&'a self, keys: &'a mut Keys) -> BoxFuture<'a, Result<(), RequestError>> {
        self.scan(keys).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_only_keys_with_the_prefix() {
        assert_eq!(pattern(b"zarr:"), b"zarr:*");
        assert_eq!(pattern(br"a*?[b]\:"), br"a\*\?\[b\]\\:*");
    }

    #[test]
    fn errors_are_refusals_or_failures_and_never_absence() {
        let of = |code: &str| {
            let text = format!("-{code} some text\r\n");
            let reply = redis::parse_redis_value(text.as_bytes()).unwrap();
            failed(&reply.extract_error().unwrap_err())
        };
        for code in ["NOAUTH", "WRONGPASS", "NOPERM"] {
            assert!(matches!(of(code), RequestError::Denied(_)), "{code}");
        }
        for (code, expected) in [
            ("LOADING", true),
            ("BUSY", true),
            ("TRYAGAIN", true),
            ("CLUSTERDOWN", true),
            ("ERR max number of clients reached", true),
            ("MOVED", false),
            ("WRONGTYPE", false),
            ("ERR", false),
        ] {
            match of(code) {
                RequestError::Failed(Failed { is_transient, .. }) => {
                    assert_eq!(is_transient, expected, "{code}");
                }
                other => panic!("{code}: {other:?}"),
            }
        }
    }

    #[test]
    fn replies_to_a_scan_are_read_and_others_refused() {
        let parse = |text: &str| redis::parse_redis_value(text.as_bytes()).unwrap();
        let reply = parse("*2\r\n$2\r\n17\r\n*1\r\n$1\r\na\r\n");
        let (cursor, keys) = cursor_and_keys(reply).unwrap();
        assert_eq!((cursor, keys), (Some(17), vec![b"a".to_vec()]));
        let end = cursor_and_keys(parse("*2\r\n$1\r\n0\r\n*0\r\n")).unwrap();
        assert_eq!(end, (None, Vec::new()));
        for wrong in ["+OK\r\n", "*1\r\n$1\r\n0\r\n", "-ERR x\r\n"] {
            assert!(cursor_and_keys(parse(wrong)).is_err());
        }
        assert_eq!(size_of(Value::Int(7)).unwrap(), Some(7));
        assert_eq!(size_of(Value::Int(0)).unwrap(), None);
        assert_eq!(size_of(parse("-WRONGTYPE x\r\n")).unwrap(), None);
        assert!(size_of(parse("-NOPERM x\r\n")).is_err());
        assert!(size_of(Value::Int(-1)).is_err());
    }
}
