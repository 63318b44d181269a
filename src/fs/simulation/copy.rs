//! Programs that copy the directory of an array, as `cp -r` and `tar` do.

use std::time::Duration;

use super::content::{ARRAYS, Array};
use super::program::{Operation, Result, World, now};
use crate::runtime::simulated::{below, record};
use crate::runtime::{self, caller};

impl World {
    /// Copies the directory of an array as `cp -r` and `tar` do: a copy has the document, and each chunk of which it
    /// speaks, or it fails.
    pub(super) async fn copy(&self, array: Array) -> Result<()> {
        let process = self.next_process();
        caller::on_behalf_of(process, self.copy_directory(array)).await
    }

    async fn copy_directory(&self, array: Array) -> Result<()> {
        let copy = Operation::begin(array.name);
        let names = self.list(array.name).await?;
        let has = |name: &str| names.iter().any(|own| own == name);
        if !has("zarr.json") {
            return Ok(());
        }
        let mut document = None;
        if below(2) == 0 {
            document = Some(self.read_whole(&array.document()).await?);
        }
        let mut chunks = Vec::new();
        if has("c") {
            let directory = format!("{}/c", array.name);
            chunks = self.list(&directory).await?;
            for chunk in chunks.iter().filter(|chunk| !chunk.starts_with('.')) {
                // A chunk that is a fill value has a name and no key.
                let _: Result<()> = self.read_key(&format!("{directory}/{chunk}")).await;
            }
        }
        let document = match document {
            Some(document) => document,
            None => self.read_whole(&array.document()).await?,
        };
        let (from, to) = (self.since(copy.begun), now());
        for number in 0..array.chunks_of(&document) {
            let is_there = self
                .shown
                .history(|history| !history.was_absent(&array.chunk_key(number), from, to));
            if is_there && !chunks.contains(&number.to_string()) {
                self.breaks(format!(
                    "the copy of {} lacks chunk {number}, and has {chunks:?}",
                    array.name
                ));
            }
        }
        record(format!("copied {}: {}", array.name, chunks.join(" ")));
        Ok(())
    }

    /// Copies arrays for a while.
    pub(super) async fn run_copies(&self, copies: u64) {
        for _ in 0..copies {
            if !self.broken.lock().is_empty() {
                return;
            }
            // At times, no program has read a document for long.
            let most_millis = [1, 100, 3000, 1_000_000][usize::try_from(below(4)).expect("short")];
            runtime::sleep(Duration::from_millis(below(most_millis))).await;
            let array = ARRAYS[usize::try_from(below(3)).expect("short")];
            // A failure that is permitted ends only the copy.
            let _: Result<()> = self.copy(array).await;
        }
    }
}
