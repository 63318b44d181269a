//! A program that reads a mount, and checks what it gets against the history of the source.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::content::{ARRAYS, Array, BLOB};
use super::session::{End, Session};
use super::shown::Shown;
use super::view_read::{HEADER_BYTES, ViewRead};
use crate::clock;
use crate::fs::{FsError, Handle, Ino, Node, StoreError};
use crate::hierarchy::KEY_CLASSES;
use crate::runtime::simulated::{below, record};
use crate::runtime::{self, caller};
use crate::store::Kind;
use crate::store::simulated::SimulatedServer;
use crate::sync::Mutex;

/// What all programs share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) session: Session,
    pub(super) server: Arc<SimulatedServer>,
    pub(super) shown: Shown,
    /// The array of the source that changes most.
    pub(super) hot: Option<Array>,
    pub(super) ttl: Duration,
    /// Whether the source lists its keys.
    pub(super) lists_keys: bool,
    /// The number of processes so far.
    pub(super) processes: AtomicU32,
    /// Whether nothing changes and no request fails any more.
    pub(super) is_calm: AtomicBool,
    pub(super) broken: Arc<Mutex<Vec<String>>>,
}

/// The end of an operation without a result: a failure that is permitted, or an interruption.
#[derive(Debug)]
pub(super) struct Stopped;

pub(super) type Result<T> = std::result::Result<T, Stopped>;

/// An operation: what it reads, and when it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation<'a> {
    path: &'a str,
    pub(super) begun: Duration,
    /// Whether each read is of the whole file.
    is_whole: bool,
}

impl<'a> Operation<'a> {
    /// Returns an operation that begins now.
    pub(super) fn begin(path: &'a str) -> Self {
        Self {
            path,
            begun: now(),
            is_whole: false,
        }
    }
}

pub(super) fn now() -> Duration {
    clock::virtual_now().unwrap_or_default()
}

/// Returns the time after which a caller is interrupted; for most, it is not.
fn interrupt() -> Option<Duration> {
    (below(10) == 0).then(|| Duration::from_millis(below(2000)))
}

/// The directory of views of a group.
const VIEWS: &str = ".zarrfs";

/// Returns the key in the store that a path in the mount shows.
fn key_of(path: &str) -> String {
    let names = path
        .split('/')
        .filter(|name| !name.is_empty() && *name != VIEWS);
    let names: Vec<&str> = names.map(|name| name.trim_end_matches(".npy")).collect();
    names.join("/")
}

/// Returns the path of the view of an array.
fn view_of(array: Array) -> String {
    match array.name.rsplit_once('/') {
        Some((group, name)) => format!("{group}/{VIEWS}/{name}.npy"),
        None => format!("{VIEWS}/{}.npy", array.name),
    }
}

impl World {
    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    pub(super) fn breaks(&self, what: String) {
        record(format!("BROKEN {what}"));
        self.broken.lock().push(what);
    }

    /// Returns the start of the time in which a version that an operation sees was current.
    ///
    /// The attributes of a value are trusted for `--ttl`, and so is a chunk that was decoded from it since. An operation
    /// can join a request that was sent before, at most a deadline ago. In the calm time there are none.
    pub(super) fn since(&self, begun: Duration) -> Duration {
        if self.shown.is_pinned() {
            return Duration::ZERO;
        }
        let age = match self.is_calm() {
            true => self.ttl,
            false => 2 * self.ttl + self.session.timeout,
        };
        begun.saturating_sub(age)
    }

    /// Returns the result of a request, or checks its failure.
    async fn result<T: Send + 'static>(
        &self,
        operation: Operation<'_>,
        what: &str,
        request: impl Future<Output = End<T>>,
    ) -> Result<T> {
        let began = now();
        let end = request.await;
        let took = now() - began;
        let path = operation.path;
        if took > self.session.timeout + super::session::GRACE {
            self.breaks(format!("{what} {path} took {took:?}"));
        }
        match end {
            End::Answered(Ok(value)) => Ok(value),
            End::Answered(Err(error)) => {
                record(format!("{what} {path}: {error}"));
                self.check_error(operation, what, &error);
                Err(Stopped)
            }
            End::Late => {
                record(format!("{what} {path}: late"));
                if self.is_calm() {
                    self.breaks(format!("{what} {path} is late without a reason"));
                }
                // Each single wait has the deadline of the store, and its error names the key.
                if self.server.last_event() + self.session.timeout < now() {
                    self.breaks(format!(
                        "{what} {path} waited beyond the deadline of the store"
                    ));
                }
                Err(Stopped)
            }
            End::Interrupted => {
                record(format!("{what} {path}: interrupted"));
                Err(Stopped)
            }
        }
    }

    fn check_error(&self, operation: Operation<'_>, what: &str, error: &FsError) {
        let path = operation.path;
        let FsError::Store(error) = error else {
            return self.breaks(format!("{what} {path}: {error:?}"));
        };
        let own = &*key_of(path);
        // A document stands for its node.
        let is_n5 = error.key().as_bytes().ends_with(b"attributes.json");
        let is_document = is_n5 || (KEY_CLASSES.is_document)(error.key());
        let key = match is_document {
            true => error.key().parent(),
            false => error.key().clone(),
        };
        let is_below = |one: &str, other: &str| {
            let rest = one.strip_prefix(other);
            rest.is_some_and(|rest| other.is_empty() || rest.is_empty() || rest.starts_with('/'))
        };
        let key = &*key_of(&key.to_string());
        let is_named = !error.key().is_root();
        let names_key = own.is_empty() || is_below(key, own) || is_below(own, key) && is_named;
        if !names_key {
            self.breaks(format!("{what} {path} names another key: {error}"));
        }
        let is_bug = match error {
            StoreError::NotFound { .. } => self.is_false_absence(operation),
            StoreError::Stale { .. } if self.shown.is_lost(now()) => false,
            StoreError::Internal { .. }
            | StoreError::Corrupt { .. }
            | StoreError::TooLarge { .. }
            | StoreError::Io { .. } => true,
            _ => self.is_calm(),
        };
        if is_bug {
            self.breaks(format!("{what} {path}: {error:?}"));
        }
    }

    /// Returns whether a path has existed for as long as the operation and all caches could tell.
    fn is_false_absence(&self, operation: Operation<'_>) -> bool {
        let (from, to) = (self.since(operation.begun), now());
        let path = operation.path;
        let key = &*key_of(path);
        self.shown.history(|history| {
            let has_always = |key: &str| !history.was_absent(key, from, to);
            if key.is_empty() {
                return !history.was_empty(from, to);
            }
            if path.contains(VIEWS) {
                return has_always(&format!("{key}/zarr.json"));
            }
            let below = format!("{key}/");
            let mut all = history.all_keys();
            match self.lists_keys {
                true => all.any(|own| (own == key || own.starts_with(&below)) && has_always(own)),
                // Without listings, the document shows that a name is a directory.
                false => has_always(key) || has_always(&format!("{key}/zarr.json")),
            }
        })
    }

    /// Looks up a path; returns its node, and the numbers to forget.
    async fn walk(&self, operation: Operation<'_>) -> Result<(Node, Vec<Ino>)> {
        let (mut parent, mut counted, mut node) = (Ino::ROOT, Vec::new(), None);
        let names: Vec<&str> = operation
            .path
            .split('/')
            .filter(|name| !name.is_empty())
            .collect();
        for (index, name) in names.iter().enumerate() {
            let path = names[..=index].join("/");
            let lookup = Operation {
                path: &path,
                ..operation
            };
            let interrupt = interrupt().filter(|_| !self.is_calm());
            let found = self.session.lookup(interrupt, parent, name);
            match self.result(lookup, "lookup", found).await {
                Ok(found) => {
                    counted.push(found.ino);
                    parent = found.ino;
                    node = Some(found);
                }
                Err(stopped) => {
                    self.forget(&counted);
                    return Err(stopped);
                }
            }
        }
        if let Some(node) = node {
            return Ok((node, counted));
        }
        let root = self.session.getattr(Ino::ROOT, None);
        let node = self.result(operation, "getattr", root).await?;
        Ok((node, counted))
    }

    fn forget(&self, counted: &[Ino]) {
        for ino in counted {
            self.session.fs.forget(*ino, 1);
        }
    }

    /// Opens a file and reads parts of it; `check` gets each part.
    async fn read_parts(
        &self,
        operation: Operation<'_>,
        mut check: impl FnMut(&Node, u64, usize, &[u8]) -> Option<String>,
    ) -> Result<()> {
        let (node, counted) = self.walk(operation).await?;
        let read = self.read_node(operation, &node, &mut check).await;
        self.forget(&counted);
        read
    }

    async fn read_node(
        &self,
        operation: Operation<'_>,
        node: &Node,
        check: &mut impl FnMut(&Node, u64, usize, &[u8]) -> Option<String>,
    ) -> Result<()> {
        if node.stat.kind == Kind::Prefix {
            return Ok(());
        }
        let interrupt_open = interrupt().filter(|_| !self.is_calm());
        let opened = self.session.open(interrupt_open, node.ino);
        let opened = self.result(operation, "open", opened).await?;
        let handle = opened.handle;
        drop(opened);
        let read = self.read_handle(operation, (node.ino, handle), check).await;
        self.session.fs.release(handle);
        read
    }

    async fn read_handle(
        &self,
        operation: Operation<'_>,
        (ino, handle): (Ino, Handle),
        check: &mut impl FnMut(&Node, u64, usize, &[u8]) -> Option<String>,
    ) -> Result<()> {
        let attributes = self.session.getattr(ino, Some(handle));
        let node = self.result(operation, "getattr", attributes).await?;
        let size = node.stat.size_bytes;
        let mut at = 0;
        for _ in 0..1 + below(5) {
            let is_whole = operation.is_whole || self.is_calm() || below(3) == 0;
            let (offset, length) = match is_whole {
                true => (0, usize::try_from(size).unwrap_or(usize::MAX)),
                false if below(2) == 0 => (at, 1 + usize::try_from(below(40_000)).expect("short")),
                false => (
                    below(size + 1),
                    1 + usize::try_from(below(300)).expect("short"),
                ),
            };
            let length = length.clamp(1, super::super::MAX_READ_BYTES);
            let interrupt = interrupt().filter(|_| !self.is_calm());
            let read = self.session.read(interrupt, (ino, handle), offset, length);
            let bytes = self.result(operation, "read", read).await?;
            record(format!(
                "read {} at {offset}: {} bytes",
                operation.path,
                bytes.len()
            ));
            let expected = size.saturating_sub(offset).min(length as u64);
            if bytes.len() as u64 != expected {
                self.breaks(format!(
                    "read {} at {offset}: {} bytes of {expected}",
                    operation.path,
                    bytes.len()
                ));
            }
            if let Some(what) = check(&node, offset, length, &bytes) {
                self.breaks(format!("read {} at {offset}: {what}", operation.path));
                return Err(Stopped);
            }
            at = offset + bytes.len() as u64;
            if below(4) == 0 && !self.is_calm() {
                runtime::sleep(Duration::from_millis(below(3000))).await;
            }
        }
        Ok(())
    }

    /// Reads a native key: all parts are those of one version.
    pub(super) async fn read_key(&self, path: &str) -> Result<()> {
        self.read_versions(Operation::begin(path)).await.map(drop)
    }

    /// Reads all of a native key.
    pub(super) async fn read_whole(&self, path: &str) -> Result<Vec<u8>> {
        let operation = Operation {
            is_whole: true,
            ..Operation::begin(path)
        };
        let parts = self.read_versions(operation).await?;
        Ok(parts
            .into_iter()
            .next()
            .map_or(Vec::new(), |(_, whole)| whole))
    }

    /// Reads parts of a native key; returns their offsets and bytes. All are those of one version.
    async fn read_versions(&self, operation: Operation<'_>) -> Result<Vec<(usize, Vec<u8>)>> {
        let path = operation.path;
        let from = self.since(operation.begun);
        let mut parts: Vec<(usize, Vec<u8>)> = Vec::new();
        let check = |node: &Node, offset: u64, _: usize, bytes: &[u8]| {
            let offset = usize::try_from(offset).expect("a short value");
            parts.push((offset, bytes.to_vec()));
            let size = usize::try_from(node.stat.size_bytes).expect("a short value");
            let is_version = |value: &[u8]| {
                let is_part = |(offset, bytes): &(usize, Vec<u8>)| {
                    value.get(*offset..offset + bytes.len()) == Some(&bytes[..])
                };
                value.len() == size && parts.iter().all(is_part)
            };
            self.shown.history(|history| {
                let states = history.states(path, from, now());
                let mut versions = states.into_iter().flatten();
                let is_one = versions.any(|version| is_version(&version.bytes));
                (!is_one).then(|| "not the bytes of one version".into())
            })
        };
        self.read_parts(operation, check).await?;
        Ok(parts)
    }

    /// Reads the view of an array: each chunk has the elements of one version, and all are of one array.
    pub(super) async fn read_view(&self, array: Array) -> Result<()> {
        let path = view_of(array);
        let operation = Operation::begin(&path);
        let from = self.since(operation.begun);
        let mut seen = ViewRead::new(array);
        let check = |_: &Node, offset: u64, _: usize, bytes: &[u8]| {
            let present = self.shown.present_elements(array);
            let elements = bytes.get(usize::try_from(HEADER_BYTES).expect("short")..);
            if self.is_calm() && elements != present.as_deref() {
                return Some("not the present elements".into());
            }
            seen.check(&self.shown, (from, now()), offset, bytes)
        };
        self.read_parts(operation, check).await
    }

    /// Lists a directory: names that exist all the time appear once.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<String>> {
        let operation = Operation::begin(path);
        let (node, counted) = self.walk(operation).await?;
        let listed = match node.stat.kind {
            Kind::Object => Ok(Vec::new()),
            Kind::Prefix => self.list_node(operation, node.ino).await,
        };
        self.forget(&counted);
        let names = listed?;
        if node.stat.kind == Kind::Prefix && !path.contains(VIEWS) {
            self.check_names(operation, &names);
        }
        Ok(names)
    }

    async fn list_node(&self, operation: Operation<'_>, ino: Ino) -> Result<Vec<String>> {
        let opened = self.session.opendir(ino);
        let handle = self.result(operation, "opendir", opened).await?;
        let (mut names, mut cookie) = (Vec::new(), 0);
        let is_plus = below(2) == 0;
        let listed = loop {
            let interrupt = interrupt().filter(|_| !self.is_calm());
            let most = 1 + usize::try_from(below(8)).expect("short");
            let part = self
                .session
                .readdir(interrupt, (ino, handle), cookie, (most, is_plus));
            match self.result(operation, "readdir", part).await {
                Ok(part) if part.is_empty() => break Ok(names),
                Ok(part) => {
                    part.iter().for_each(|name| name.forget(&self.session.fs));
                    cookie = part.last().map_or(cookie, |name| name.next());
                    names.extend(part.into_iter().map(|name| name.name));
                }
                Err(stopped) => break Err(stopped),
            }
        };
        self.session.fs.releasedir(handle);
        listed
    }

    fn check_names(&self, operation: Operation<'_>, names: &[String]) {
        let (from, to) = (self.since(operation.begun), now());
        let path = operation.path;
        record(format!("list {path}: {}", names.join(" ")));
        let unique: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        if unique.len() != names.len() {
            self.breaks(format!("list {path}: a name appears twice in {names:?}"));
        }
        let prefix = if path.is_empty() {
            String::new()
        } else {
            format!("{path}/")
        };
        let (mut always, mut ever) = (BTreeSet::new(), BTreeSet::from([".".into(), "..".into()]));
        self.shown.history(|history| {
            for key in history.all_keys() {
                let Some(rest) = key.strip_prefix(&prefix) else {
                    continue;
                };
                let name = rest.split('/').next().unwrap_or(rest).to_owned();
                if !history.was_absent(key, from, to) {
                    always.insert(name.clone());
                }
                if history.states(key, from, to).iter().any(Option::is_some) {
                    ever.insert(name);
                }
            }
        });
        if !self.lists_keys {
            // Names come from metadata; consolidated metadata at the root always name the group.
            let names_group = path.is_empty() && self.shown.is_consolidated();
            always.retain(|name| name == "zarr.json" || names_group && name == "g");
        }
        for name in always.iter().filter(|name| !unique.contains(&***name)) {
            self.breaks(format!("list {path}: {name} is missing in {names:?}"));
        }
        for name in unique
            .iter()
            .filter(|name| !ever.contains(**name) && self.lists_keys)
        {
            self.breaks(format!("list {path}: {name} did not exist"));
        }
    }

    /// Returns the number of another process, which no real process has.
    pub(super) fn next_process(&self) -> u32 {
        (1 << 30) + self.processes.fetch_add(1, Ordering::Relaxed)
    }

    /// Does one thing that a program may do.
    async fn act(&self) {
        let hot = self.hot.filter(|_| below(2) == 0);
        let array = hot.unwrap_or(ARRAYS[usize::try_from(below(3)).expect("short")]);
        let path = match below(4) {
            0 => array.document(),
            _ if hot.is_some() => array.chunk_key(0),
            _ => array.chunk_key(below(8)),
        };
        let done = match below(12) {
            0..4 => self.read_view(array).await,
            4..7 => self.read_key(&path).await,
            7 => self.read_key(BLOB).await,
            8 => self.read_key("zarr.json").await,
            9 => self.read_key(&format!("{}/nothing", array.name)).await,
            _ => {
                let directories = [
                    "",
                    "a",
                    "a/c",
                    "b",
                    "b/c",
                    "g",
                    "g/s",
                    "g/s/c",
                    VIEWS,
                    "g/.zarrfs",
                ];
                let number = usize::try_from(below(directories.len() as u64)).expect("short");
                self.list(directories[number]).await.map(drop)
            }
        };
        // A failure that is permitted ends only the operation.
        let _: Result<()> = done;
    }

    /// Reads for a while.
    pub(super) async fn run(&self, operations: u64) {
        let process = self.next_process();
        caller::on_behalf_of(process, self.run_program(operations)).await;
    }

    async fn run_program(&self, operations: u64) {
        for _ in 0..operations {
            if !self.broken.lock().is_empty() {
                return;
            }
            if below(3) == 0 {
                runtime::sleep(Duration::from_millis(below(2000))).await;
            }
            self.act().await;
        }
    }

    /// Reads everything; nothing may fail.
    pub(super) async fn run_calm(&self) {
        // Once after a listing from older consolidated metadata, the document of the directory cannot be opened.
        for directory in ["a", "b", "g", "g/s"] {
            // It may be absent; other failures break a rule.
            let _: Result<Vec<String>> = self.list(directory).await;
        }
        let (present, all) = self.shown.history(|history| {
            let present = history.all_present().map(|(key, _)| key.to_owned());
            let all = history.all_keys().map(str::to_owned);
            (present.collect::<BTreeSet<_>>(), all.collect::<Vec<_>>())
        });
        for key in all {
            let is_read = self.read_key(&key).await.is_ok();
            if is_read != present.contains(&key) && (is_read || !self.shown.is_lost(now())) {
                self.breaks(format!("{key}: read: {is_read}"));
            }
        }
        for array in ARRAYS {
            let exists = self.shown.present_elements(array).is_some();
            let is_read = self.read_view(array).await.is_ok();
            if is_read != exists && (is_read || !self.shown.is_lost(now())) {
                self.breaks(format!("view of {}: read: {is_read}", array.name));
            }
        }
        for array in ARRAYS {
            let is_copied = self.copy(array).await.is_ok();
            let exists = self.shown.present_elements(array).is_some();
            if exists && !is_copied && !self.shown.is_lost(now()) {
                self.breaks(format!("{} is not copied", array.name));
            }
        }
        for directory in ["", "g", VIEWS] {
            let listed = self.list(directory).await;
            if listed.is_err() && !self.shown.is_lost(now()) {
                self.breaks(format!("{directory} is not listed"));
            }
        }
    }
}
