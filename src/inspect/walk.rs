//! The way through a source that a check takes: every key once, each as a task.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::NoZarr;
use super::hierarchy::{self, Trouble, What};
use super::keys::{self, Found, Names, Visited};
use super::report::Severity;
use crate::array::{Engine, Verifier};
use crate::store::{Key, Kind, Store, StoreError};
use crate::zarr::{Array, FillValue, Node, ZarrFormat};

/// Something to read.
#[derive(Debug)]
pub(super) enum Task {
    /// A chunk to decode: the number of its array, and its own.
    Chunk {
        array: usize,
        verifier: Arc<Verifier>,
        chunk: u64,
        size_bytes: Option<u64>,
    },
    /// A value that is read and not decoded.
    Plain { key: Key, size_bytes: Option<u64> },
}

/// Takes what is found on the way; breaks when nobody wants any more.
pub(super) trait Sink {
    fn array(&mut self, key: Key, not_checked: Option<String>) -> usize;
    fn task(&mut self, task: Task) -> ControlFlow<()>;
    fn finding(&mut self, severity: Severity, key: &Key, cause: String) -> ControlFlow<()>;
}

/// Names in one array that are no chunks and are told one by one.
const MAX_STRAY_NAMES: u64 = 20;

/// Walks everything at and below `root`, where `no_zarr` says that no Zarr metadata are.
pub(super) fn walk(
    store: &Arc<dyn Store>,
    engine: &Engine,
    root: &Key,
    no_zarr: Option<&NoZarr>,
    sink: &mut dyn Sink,
) -> ControlFlow<()> {
    let mut pending = vec![root.clone()];
    let mut is_zarr = false;
    while let Some(key) = pending.pop() {
        let place = hierarchy::place(&**store, &key);
        is_zarr |= !matches!(place.what, What::Directory);
        let mut told = None;
        for ignored in place.ignored {
            sink.finding(Severity::Warning, &key, ignored)?;
        }
        match place.what {
            What::Node(node) => match *node {
                Node::Array(array) => {
                    walk_array(store, engine, &key, &array, sink)?;
                    continue;
                }
                Node::Group(ref group) => {
                    if let Err(error) = &group.attributes {
                        sink.finding(Severity::Bad, &key, error.to_string())?;
                    }
                    for extension in &group.extensions {
                        sink.finding(Severity::Warning, &key, extension.to_string())?;
                    }
                    if let Err(why) = hierarchy::copies(&**store, &key, &node) {
                        let why = format!("consolidated metadata: {why}");
                        sink.finding(Severity::Bad, &key, why)?;
                    }
                }
            },
            What::Directory => {}
            What::Broken {
                document,
                why,
                is_unread,
            } => {
                let document = key.join(document.as_bytes());
                let document = document.unwrap_or_else(|_| key.clone());
                sink.finding(Severity::Bad, &document, format!("metadata: {why}"))?;
                told = is_unread.then_some(document);
            }
        }
        walk_directory(&**store, &key, told.as_ref(), &mut pending, sink)?;
        if store
            .incomplete_listing(&key)
            .is_some_and(|names| names.is_unlisted)
        {
            let what = "its children can not be listed: what is below it is not checked".to_owned();
            sink.finding(Severity::Unlisted, &key, what)?;
        }
    }
    let missing = match no_zarr {
        Some(no_zarr) => Some(no_zarr.what()),
        None => (!is_zarr).then(|| "no group and no array is here".to_owned()),
    };
    if let Some(what) = missing {
        sink.finding(Severity::Bad, root, what)?;
    }
    ControlFlow::Continue(())
}

/// The values of a directory that is no array but `told`, whose failure was told already; its
/// directories go to `pending`.
fn walk_directory(
    store: &dyn Store,
    key: &Key,
    told: Option<&Key>,
    pending: &mut Vec<Key>,
    sink: &mut dyn Sink,
) -> ControlFlow<()> {
    let mut flow = ControlFlow::Continue(());
    let listed = store.list(key).and_then(|mut listing| {
        listing.visit(0, &mut |listed| {
            let Ok(key) = key.join(listed.name) else {
                return ControlFlow::Continue(());
            };
            match listed.kind {
                _ if told == Some(&key) => {}
                Kind::Prefix => pending.push(key),
                Kind::Object => {
                    let size_bytes = listed.stat.map(|stat| stat.size_bytes);
                    flow = sink.task(Task::Plain { key, size_bytes });
                }
            }
            flow
        })
    });
    flow?;
    match listed {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => unlistable(key, &error, sink),
    }
}

fn unlistable(key: &Key, error: &StoreError, sink: &mut dyn Sink) -> ControlFlow<()> {
    let why = format!("can not be listed: {}", hierarchy::cause(key, error));
    sink.finding(Severity::Bad, key, why)
}

fn walk_array(
    store: &Arc<dyn Store>,
    engine: &Engine,
    key: &Key,
    array: &Array,
    sink: &mut dyn Sink,
) -> ControlFlow<()> {
    if let Err(error) = &array.attributes {
        sink.finding(Severity::Bad, key, format!("metadata: {error}"))?;
    }
    if array.format == ZarrFormat::V3 && array.fill_value == Ok(FillValue::Undefined) {
        let what = "fill_value: null is not in the specification; it is read as zero".to_owned();
        sink.finding(Severity::Warning, key, what)?;
    }
    let mut troubles: Vec<Trouble> = array.problems().map(Trouble::from).collect();
    if troubles.is_empty() {
        troubles.extend(hierarchy::pipeline(array).err());
    }
    let mut verifier = None;
    if troubles.is_empty() {
        match Verifier::open(Arc::clone(store), key.clone(), array, engine) {
            Ok(opened) => verifier = Some(Arc::new(opened)),
            Err(error) => {
                let why = hierarchy::cause(key, &error);
                troubles.push(match error {
                    StoreError::Unsupported { .. } => Trouble::Unsupported(why),
                    _ => Trouble::Invalid(why),
                });
            }
        }
    }
    for trouble in &troubles {
        let (severity, why) = match trouble {
            Trouble::Unsupported(why) => (Severity::NotChecked, why.clone()),
            Trouble::Invalid(why) => (Severity::Bad, format!("metadata: {why}")),
        };
        sink.finding(severity, key, why)?;
    }
    let number = sink.array(key.clone(), troubles.first().map(ToString::to_string));
    let names = Names::of(array);
    let mut stray = 0;
    keys::visit(&**store, key, names.as_ref(), &mut |visited| {
        let Visited {
            key,
            found,
            is_value,
            size_bytes,
        } = visited;
        match found {
            Found::Chunk(chunk) => {
                if let Some(verifier) = &verifier {
                    return sink.task(Task::Chunk {
                        array: number,
                        verifier: Arc::clone(verifier),
                        chunk,
                        size_bytes,
                    });
                }
            }
            Found::Plain => {}
            Found::Stray => {
                stray += 1;
                if stray <= MAX_STRAY_NAMES {
                    let what = "no chunk of the array's grid".to_owned();
                    sink.finding(Severity::Warning, &key, what)?;
                }
            }
            Found::Misplaced(what) => sink.finding(Severity::Bad, &key, what.to_owned())?,
            Found::Failed(error) => return unlistable(&key, &error, sink),
        }
        match is_value {
            true => sink.task(Task::Plain { key, size_bytes }),
            false => ControlFlow::Continue(()),
        }
    })?;
    if stray > MAX_STRAY_NAMES {
        let more = stray - MAX_STRAY_NAMES;
        let what = format!("{more} more names are no chunks of the array's grid");
        sink.finding(Severity::Warning, key, what)?;
    }
    ControlFlow::Continue(())
}
