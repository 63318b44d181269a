//! MongoDB: a collection of documents `{_id, key, value}`.
//!
//! zarr-python creates no index of `key`, so a query by key reads the whole collection. Therefore one
//! projection reads all keys, with the `_id` of each, and values are requested by `_id`. For a key that was
//! not found, the keys are read again once they are older than `--ttl`.
//!
//! If several documents have the same key, the first one counts, as in zarr-python. A document without a key
//! is ignored; one whose value is not binary is an error of its key.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{ClientOptions, ConnectionString, Credential};
use mongodb::{Client, Collection};
use percent_encoding::percent_decode_str;
use tokio::sync::{Mutex, OnceCell};

use super::{KeyLookup, KeyValueClient, KeyValueOptions, Keys, ReadValue, TRAITS, source};
use crate::clock::Instant;
use crate::store::remote::protocol::options::RemoteOptions;
use crate::store::remote::protocol::{Location, Protocol};
use crate::store::remote::request::{Failed, FailureKind, Refusal, Remote, RequestError};
use crate::store::{Key, KeyClasses};

/// The default names of zarr-python's store.
const DATABASE: &str = "mongodb_zarr";
const COLLECTION: &str = "zarr_collection";
/// The protocol of MongoDB.
pub(in crate::store::remote) const PROTOCOL: Protocol = Protocol {
    schemes: &["mongodb"],
    example: "mongodb://HOST/DATABASE/COLLECTION",
    traits: TRAITS,
    parse: |url, variable| MongoDbUrl::parse(url, variable).map(|url| Box::new(url) as _),
    denied: |_| {
        " (credentials come from MONGODB_USERNAME and MONGODB_PASSWORD in the environment or in --env-file, or \
         from the URL)"
    },
};
/// Estimated bytes of an `_id` besides its key.
const ID_BYTES: u64 = 96;
/// Number of documents in one reply, which keeps replies short.
const BATCH: u32 = 10_000;

/// A collection, and the user who reads it.
#[derive(Clone)]
pub(super) struct MongoDbUrl {
    connection: Box<ConnectionString>,
    credentials: Option<(String, String)>,
    hosts: String,
    database: String,
    collection: String,
}

impl fmt::Debug for MongoDbUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

impl MongoDbUrl {
    /// Parses `mongodb://[USER:PASSWORD@]HOST[:PORT][,...][/DATABASE[/COLLECTION]][?OPTIONS]`. The options
    /// are those of the driver.
    ///
    /// # Errors
    /// The reason why the URL is invalid, without secrets.
    pub(super) fn parse(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let rest = text.strip_prefix("mongodb://").unwrap_or(text);
        let (place, options) = match rest.split_once('?') {
            Some((place, options)) => (place, format!("?{options}")),
            None => (rest, String::new()),
        };
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        // The database in the path has the keys. The user is authenticated in `authSource`, or in `admin`.
        let connection = ConnectionString::parse(format!("mongodb://{authority}/{options}"));
        let connection = connection.map_err(|error| match user {
            // The invalid part may be the password.
            Some(_) => "user, password, hosts or options cannot be understood".to_owned(),
            None => error.kind.to_string(),
        })?;
        let mut names = path.trim_end_matches('/').split('/');
        let mut name = |default: &str| {
            let name = names.next().filter(|name| !name.is_empty());
            let name = name.map(|name| percent_decode_str(name).decode_utf8_lossy().into_owned());
            name.unwrap_or_else(|| default.to_owned())
        };
        let (database, collection) = (name(DATABASE), name(COLLECTION));
        if names.next().is_some() {
            return Err("behind the host stand a database and a collection: /db/collection".into());
        }
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let credentials = match user {
            Some(_) => None,
            None => variable("MONGODB_USERNAME").zip(variable("MONGODB_PASSWORD")),
        };
        Ok(Self {
            connection: Box::new(connection),
            credentials,
            hosts: hosts.to_owned(),
            database,
            collection,
        })
    }
}

impl Location for MongoDbUrl {
    fn label(&self) -> String {
        let (database, collection) = (&self.database, &self.collection);
        format!("mongodb://{}/{database}/{collection}", self.hosts)
    }

    fn nothing_there(&self, _documents: &[&str]) -> String {
        "the collection has no document (is its name right?)".into()
    }

    fn open(
        &self,
        options: &RemoteOptions,
        classes: KeyClasses,
    ) -> Result<Arc<dyn Remote>, String> {
        let options = KeyValueOptions::new(options, classes);
        Ok(source(MongoDb::new(self, options), options))
    }
}

/// The `_id` of each key.
type Ids = HashMap<Box<[u8]>, Bson>;

/// A collection of MongoDB.
pub(super) struct MongoDb {
    url: MongoDbUrl,
    timeout: Duration,
    ttl: Duration,
    memory_bytes: u64,
    /// Created by a thread of the network runtime.
    collection: OnceCell<Collection<Document>>,
    ids: Mutex<Option<(Arc<Ids>, Instant)>>,
}

impl fmt::Debug for MongoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MongoDb").field(&self.url).finish()
    }
}

/// Converts an error of the server or of the connection; no error proves absence.
fn failed(error: &Error) -> RequestError {
    let what = error.kind.to_string();
    let refused = |what| RequestError::Denied(Refusal { what, status: None });
    match &*error.kind {
        ErrorKind::Authentication { .. } => refused(what),
        // Unauthorized and AuthenticationFailed in the list of error codes.
        ErrorKind::Command(command) if matches!(command.code, 13 | 18) => refused(what),
        ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => {
            RequestError::Failed(Failed {
                what,
                kind: FailureKind::Unreachable,
                is_transient: true,
                ..Failed::default()
            })
        }
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => RequestError::transient(what),
        _ if error.contains_label("RetryableReadError") => RequestError::transient(what),
        _ => RequestError::lasting(what),
    }
}

fn unexpected(what: &str) -> RequestError {
    RequestError::lasting(format!("what the server replies has no {what}"))
}

/// Computes the size of a binary value in bytes, and -1 for any other value.
fn size() -> Document {
    let is_binary = doc! { "$eq": [{ "$type": "$value" }, "binData"] };
    doc! { "$cond": [is_binary, { "$binarySize": "$value" }, -1] }
}

/// Returns the size in a projection; `None` for a value that is not binary.
fn size_of(document: &Document) -> Result<Option<u64>, RequestError> {
    let size = match document.get("size") {
        Some(Bson::Int32(size)) => i64::from(*size),
        Some(Bson::Int64(size)) => *size,
        _ => return Err(unexpected("size")),
    };
    Ok(u64::try_from(size).ok())
}

fn not_binary() -> RequestError {
    RequestError::lasting("its value is not binary")
}

impl MongoDb {
    /// Creates a client of a collection; it connects with the first request.
    pub(super) fn new(url: &MongoDbUrl, options: KeyValueOptions) -> Self {
        Self {
            url: url.clone(),
            timeout: options.timeout,
            ttl: options.ttl,
            memory_bytes: options.memory_bytes,
            collection: OnceCell::new(),
            ids: Mutex::default(),
        }
    }

    async fn collection(&self) -> Result<&Collection<Document>, RequestError> {
        let connect = || async {
            let parsed = ClientOptions::parse((*self.url.connection).clone()).await;
            let mut options = parsed.map_err(|error| failed(&error))?;
            options.app_name = Some("zarrfs".into());
            // The layers above repeat failed requests.
            options.retry_reads = Some(false);
            options.connect_timeout.get_or_insert(self.timeout);
            options
                .server_selection_timeout
                .get_or_insert(self.timeout / 2);
            if let Some((user, password)) = &self.url.credentials {
                let credential = options.credential.get_or_insert_with(Credential::default);
                credential.username.get_or_insert(user.clone());
                credential.password.get_or_insert(password.clone());
            }
            let client = Client::with_options(options).map_err(|error| failed(&error))?;
            let database = client.database(&self.url.database);
            Ok(database.collection(&self.url.collection))
        };
        self.collection.get_or_try_init(connect).await
    }

    /// Reads the `_id` of each key; adds each key and its size to `keys`.
    async fn read_ids(&self, keys: &mut Keys) -> Result<Ids, RequestError> {
        let projection = doc! { "$project": { "key": 1, "size": size() } };
        let found = self.collection().await?.aggregate([projection]);
        let mut found = found.batch_size(BATCH).await.map_err(|e| failed(&e))?;
        let (mut ids, mut bytes) = (Ids::new(), 0_u64);
        let mut without_key = 0_u64;
        while found.advance().await.map_err(|error| failed(&error))? {
            let document = found.deserialize_current().map_err(|e| failed(&e))?;
            let (Ok(key), Some(id)) = (document.get_str("key"), document.get("_id")) else {
                without_key += 1;
                continue;
            };
            if ids.contains_key(key.as_bytes()) {
                continue;
            }
            bytes = bytes.saturating_add(key.len() as u64 + ID_BYTES);
            if bytes > self.memory_bytes {
                return Err(RequestError::lasting(format!(
                    "its {} first keys take more than {} bytes of memory",
                    ids.len(),
                    self.memory_bytes
                )));
            }
            keys.add(key.as_bytes(), size_of(&document)?)?;
            ids.insert(key.as_bytes().into(), id.clone());
        }
        if without_key > 0 {
            log::warn!("{without_key} documents without a key are left out");
        }
        Ok(ids)
    }

    /// Returns the keys: those read less than `--ttl` ago, or else those read now.
    async fn ids(&self) -> Result<Arc<Ids>, RequestError> {
        let mut last = self.ids.lock().await;
        if let Some((ids, _)) = last
            .as_ref()
            .filter(|(_, since)| since.elapsed() < self.ttl)
        {
            return Ok(Arc::clone(ids));
        }
        *last = None;
        let since = Instant::now();
        let ids = self.read_ids(&mut Keys::new(self.memory_bytes)).await?;
        let ids = Arc::new(ids);
        *last = Some((Arc::clone(&ids), since));
        Ok(ids)
    }

    /// Returns the document of a key, as `stages` project it, and the keys that it was found with.
    async fn document(
        &self,
        key: &Key,
        stages: &[Document],
    ) -> Result<(Arc<Ids>, Option<Document>), RequestError> {
        // A document that was removed may exist again with another `_id`.
        for _ in 0..2 {
            let ids = self.ids().await?;
            let Some(id) = ids.get(key.as_bytes()) else {
                return Ok((ids, None));
            };
            let mut pipeline = vec![doc! { "$match": { "_id": id.clone() } }];
            pipeline.extend_from_slice(stages);
            let found = self.collection().await?.aggregate(pipeline).await;
            let mut found = found.map_err(|error| failed(&error))?;
            if found.advance().await.map_err(|error| failed(&error))? {
                let document = found.deserialize_current().map_err(|e| failed(&e))?;
                if document.get_str("key").ok().map(str::as_bytes) == Some(key.as_bytes()) {
                    return Ok((ids, Some(document)));
                }
            }
            let mut last = self.ids.lock().await;
            if last
                .as_ref()
                .is_some_and(|(last, _)| Arc::ptr_eq(last, &ids))
            {
                *last = None;
            }
        }
        Err(RequestError::transient("it was replaced while it was read"))
    }
}

impl KeyValueClient for MongoDb {
    fn find<'a>(
        &'a self,
        key: &'a Key,
        below: &'a [Key],
    ) -> BoxFuture<'a, Result<KeyLookup, RequestError>> {
        async move {
            let projection = doc! { "$project": { "key": 1, "size": size() } };
            let (ids, found) = self.document(key, &[projection]).await?;
            let size = |document| size_of(&document)?.ok_or_else(not_binary);
            let size_bytes = found.map(size).transpose()?;
            let has = |key: &Key| ids.contains_key(key.as_bytes());
            Ok(KeyLookup {
                size_bytes,
                below: below.iter().position(has),
            })
        }
        .boxed()
    }

    /// The value is read whole, whatever its size: a document has 16 MiB at most.
    fn value<'a>(
        &'a self,
        key: &'a Key,
        _: u64,
    ) -> BoxFuture<'a, Result<Option<ReadValue>, RequestError>> {
        async move {
            let (_, Some(mut document)) = self.document(key, &[]).await? else {
                return Ok(None);
            };
            match document.remove("value") {
                Some(Bson::Binary(Binary { bytes, .. })) => Ok(Some(ReadValue::Value(bytes))),
                _ => Err(not_binary()),
            }
        }
        .boxed()
    }

    fn keys<'a>(&'a self, keys: &'a mut Keys) -> BoxFuture<'a, Result<(), RequestError>> {
        async move {
            let mut last = self.ids.lock().await;
            *last = None;
            let since = Instant::now();
            let ids = self.read_ids(keys).await?;
            *last = Some((Arc::new(ids), since));
            Ok(())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_database_and_collection_and_no_label_has_a_secret() {
        let parse = |text: &str| MongoDbUrl::parse(text, |_| None);
        for (text, label) in [
            ("mongodb://h", "mongodb://h/mongodb_zarr/zarr_collection"),
            ("mongodb://h:1/a", "mongodb://h:1/a/zarr_collection"),
            (
                "mongodb://u:secret@h,i:2/a/b?replicaSet=r",
                "mongodb://h,i:2/a/b",
            ),
        ] {
            let url = parse(text).unwrap();
            assert_eq!(format!("{url:?}"), label);
        }
        for wrong in [
            "mongodb://u:sec@ret@h/a/b",
            "mongodb://u:secret@h/a/b?connectTimeoutMS=secret",
            "mongodb://u:secret@h/a/b/c",
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(!error.contains("ret"), "{error}");
        }
    }

    #[test]
    fn a_user_of_the_environment_is_for_urls_without_one() {
        let variable = |name: &str| Some(name.to_lowercase());
        let credentials = |text: &str| MongoDbUrl::parse(text, variable).unwrap().credentials;
        let own = ("mongodb_username".to_owned(), "mongodb_password".to_owned());
        assert_eq!(credentials("mongodb://h"), Some(own));
        assert_eq!(credentials("mongodb://u:p@h"), None);
    }
}
