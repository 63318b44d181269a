//! Renders the files of a listing ahead of the requests for their attributes, on several threads.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::find::find_child;
use super::view::{View, ViewKind};
use crate::clock::Instant;
use crate::runtime;
use crate::store::Key;
use crate::view::{Format, Nodes};

/// The number of names whose files are rendered at once: so few that a program waits for some milliseconds at most.
const NAMES_AT_ONCE: usize = 256;
/// The number of files that one task of the CPU pool renders.
const FILES_PER_TASK: usize = 16;
/// How long a listing waits for files. The others are rendered when their names are looked up, so that a slow disk does
/// not let the listing fail.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// The files of the arrays of a group in an open directory of views, whose sizes depend on other nodes. They are
/// rendered when a program reads attributes, so that one request returns the attributes of many files.
#[derive(Debug)]
pub(super) struct FilesAhead {
    nodes: Arc<Nodes>,
    view: View,
    /// The number of the first name whose file is rendered next.
    wanted: usize,
    /// The numbers of the names whose files were rendered last.
    rendered: Range<usize>,
}

impl FilesAhead {
    /// Returns the files of a directory of views. `None` if their attributes take requests, or are not trusted after
    /// they are rendered.
    pub(super) fn of(nodes: &Arc<Nodes>, view: &View) -> Option<Self> {
        let capabilities = nodes.store().capabilities();
        let is_cached = capabilities.immutable || !nodes.options().ttl.present.is_zero();
        let is_of_group = view.kind == ViewKind::Hidden && !view.node.is_array();
        (is_of_group && is_cached && !capabilities.is_remote).then(|| Self {
            nodes: Arc::clone(nodes),
            view: view.clone(),
            wanted: 0,
            rendered: 0..0,
        })
    }

    /// Returns the number of the name before which the caller has to wait for [`FilesAhead::render`]; `first` is the
    /// number of the name that it visits first. The first names of a directory are not waited for: each listing of
    /// names alone begins with them.
    pub(super) fn end(&mut self, first: usize, names: usize) -> usize {
        if first == 0 {
            return names;
        }
        self.wanted = match self.rendered.contains(&first) {
            true => self.rendered.end,
            false => first,
        };
        self.wanted
    }

    /// Renders the next files.
    pub(super) async fn render(&mut self, names: impl Iterator<Item = &[u8]>) {
        let end = self.wanted.saturating_add(NAMES_AT_ONCE);
        let names = names.skip(self.wanted).take(NAMES_AT_ONCE);
        let files: Vec<_> = names.filter_map(|name| self.file(name)).collect();
        let deadline = Instant::now() + MAX_WAIT;
        let tasks = files.chunks(FILES_PER_TASK).map(|files| {
            let (nodes, files) = (Arc::clone(&self.nodes), files.to_vec());
            runtime::spawn(async move {
                for (key, format) in files {
                    if Instant::now() > deadline {
                        return;
                    }
                    // The lookup of a name returns the error.
                    if let Ok(Some(node)) = find_child(&nodes, &key).await {
                        drop(nodes.content(&node, format).await);
                    }
                }
            })
        });
        join_all(tasks).await;
        self.rendered = self.wanted..end;
    }

    /// Returns the node and the format of a name, if its file is rendered ahead.
    fn file(&self, name: &[u8]) -> Option<(Key, Format)> {
        let mut parsed = Format::parse_name(name).filter(|it| it.format.suits(true));
        let parsed = parsed.next()?;
        let key = self.view.node.key().join(parsed.beside(false)?).ok()?;
        // The elements of an array are no metadata.
        let is_rendered = parsed.format.is_of_many() && !parsed.format.is_packed();
        is_rendered.then_some((key, parsed.format))
    }
}
