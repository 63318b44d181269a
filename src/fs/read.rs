//! Reading files: here, if the bytes are at hand, or by a worker.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Fs, FsError, Handle, MAX_READ_BYTES};
use crate::store::{BUFFER_HEADROOM_BYTES, Data, Object, Patience, StoreError, never_waiting};
use crate::tree::Ino;

/// How a read is answered: at once, or later by a worker.
pub trait ReadReply: Sized {
    /// How a worker answers.
    type Later: LaterReply;

    /// Takes the bytes (fewer than asked for only at the end of the file), or why there are none.
    fn answer(self, result: Result<&[u8], FsError>);

    /// The same for a worker; none if it has been answered.
    fn later(self) -> Option<Self::Later>;
}

/// How a worker answers a read; dropped without an answer, it has to say that itself.
pub trait LaterReply: Send + 'static {
    /// Whether nobody waits for the answer any more.
    fn is_answered(&self) -> bool;

    /// As [`ReadReply::answer`].
    fn answer(self, result: Result<&[u8], FsError>);
}

thread_local! {
    /// Where reads are put together: one buffer a thread, never allocated per request.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Fs {
    /// Reads from a file: by its handle, or by its number where nothing needs to be opened.
    pub fn read(
        self: &Arc<Self>,
        ino: Ino,
        handle: Option<Handle>,
        offset: u64,
        size: usize,
        reply: impl ReadReply,
    ) {
        let size = size.min(MAX_READ_BYTES);
        let object = match handle {
            Some(handle) => self.files.get(handle).ok_or(FsError::BadHandle),
            None => self.ask(Patience::Now, || Ok(self.tree.open(ino)?)),
        };
        let object = match object {
            Ok(object) => object,
            Err(error) if error.would_wait() => {
                let Some(reply) = reply.later() else { return };
                let fs = Arc::clone(self);
                self.stats.offloaded();
                return self.offload.submit_alone(move || match fs.tree.open(ino) {
                    Ok(object) => fs.read_waiting(&*object, offset, size, reply),
                    Err(error) => reply.answer(Err(error.into())),
                });
            }
            Err(error) => return reply.answer(Err(error)),
        };
        let left = with_buffer(size, |buffer| {
            let Some(buffer) = buffer else {
                reply.answer(Err(FsError::OutOfMemory));
                return None;
            };
            let mut read = || object.read(offset, size, buffer, Patience::Now);
            let result = match self.is_remote {
                true => never_waiting(read),
                false => read(),
            };
            match result {
                Err(StoreError::WouldWait { .. }) => Some(reply),
                result => {
                    reply.answer(bytes(&result, buffer));
                    None
                }
            }
        });
        let Some(reply) = left.and_then(ReadReply::later) else {
            return;
        };
        self.stats.offloaded();
        let fs = Arc::clone(self);
        // Reads of one file keep their order, unless the file does not mind.
        let is_alone = self.is_remote || object.is_parallel();
        let job = move || fs.read_waiting(&*object, offset, size, reply);
        match is_alone {
            true => self.offload.submit_alone(job),
            false => self.offload.submit(ino.0, job),
        }
    }

    /// Reads on a worker.
    fn read_waiting(&self, object: &dyn Object, offset: u64, size: usize, reply: impl LaterReply) {
        if reply.is_answered() {
            return;
        }
        match self.is_remote {
            // So many workers do not each keep a buffer, nor have one while they wait.
            true => {
                let result = object.read_owned(offset, size);
                reply.answer(bytes(&result, &[]));
            }
            false => with_buffer(size, |buffer| {
                let Some(buffer) = buffer else {
                    return reply.answer(Err(FsError::OutOfMemory));
                };
                let result = object.read(offset, size, buffer, Patience::Wait);
                reply.answer(bytes(&result, buffer));
            }),
        }
    }
}

/// What was read, or why nothing was, as a reply takes it.
fn bytes<'a>(result: &'a Result<Data, StoreError>, buffer: &'a [u8]) -> Result<&'a [u8], FsError> {
    match result {
        Ok(data) => Ok(data.bytes(buffer)?),
        Err(error) => Err(error.clone().into()),
    }
}

/// Lends this thread's buffer, with room for `size` bytes and the store's headroom; none if the
/// system gives no memory.
fn with_buffer<T>(size: usize, read: impl FnOnce(Option<&mut [u8]>) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        let needed = size.saturating_add(BUFFER_HEADROOM_BYTES);
        let missing = needed.saturating_sub(buffer.len());
        if buffer.try_reserve_exact(missing).is_ok() {
            buffer.resize(buffer.len().max(needed), 0);
        }
        read(buffer.get_mut(..needed))
    })
}
