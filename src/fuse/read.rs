//! READ, on the session thread, on the local I/O pool, or in a future.

use std::sync::Arc;

use fuser::{INodeNo, ReplyData};

use super::Service;
use super::in_flight::{ErrorReply, ReplyGuard, RequestId};
use super::reply::report;
use crate::fs::{FsError, Handle, Ino, Reader, with_buffer};

/// The reply of a read on the session thread. If a panic drops it unsent, it counts the panic and
/// sends EIO.
struct ReadReply<'a> {
    service: &'a Service,
    ino: INodeNo,
    reply: Option<ReplyData>,
}

impl ReadReply<'_> {
    fn answer(mut self, bytes: Result<&[u8], FsError>) {
        match bytes {
            Ok(bytes) => {
                if let Some(reply) = self.reply.take() {
                    reply.data(bytes);
                }
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn refuse(&mut self, error: &FsError) {
        if let Some(reply) = self.reply.take() {
            reply.refuse(report(&self.service.fs, "read", self.ino, None, error));
        }
    }
}

impl Drop for ReadReply<'_> {
    fn drop(&mut self) {
        if self.reply.is_some() {
            self.service.fs.stats().panicked();
            self.refuse(&FsError::Panicked);
        }
    }
}

impl ReplyGuard<ReplyData> {
    fn answer(&self, bytes: Result<&[u8], FsError>) {
        match bytes {
            Ok(bytes) => {
                if let Some(reply) = self.take() {
                    reply.data(bytes);
                }
            }
            Err(error) => self.refuse(&error),
        }
    }
}

impl Service {
    pub(super) fn read(
        self: &Arc<Self>,
        tid: u32,
        ino: Ino,
        handle: Option<Handle>,
        offset: u64,
        size: usize,
        reply: ReplyData,
    ) {
        let reply = ReadReply {
            service: self,
            ino: INodeNo(ino.0),
            reply: Some(reply),
        };
        let reader = match self.fs.try_reader(ino, handle, offset, size) {
            Some(Ok(reader)) => Some(reader),
            Some(Err(error)) => return reply.answer(Err(error)),
            None => None,
        };
        let reply = match &reader {
            None => Some(reply),
            Some(reader) => with_buffer(|buffer| match reader.try_read(buffer) {
                None => Some(reply),
                Some(read) => {
                    match &read {
                        Ok(bytes) => reply.answer(bytes.get()),
                        Err(error) => reply.answer(Err(error.clone())),
                    }
                    None
                }
            }),
        };
        let Some(reply) = reply.and_then(|mut reply| reply.reply.take()) else {
            return;
        };
        let id = RequestId {
            operation: "read",
            ino: INodeNo(ino.0),
            name: None,
            bytes: Some(offset..offset.saturating_add(size as u64)),
        };
        let Some((guard, starting)) = self.tracker.begin(&self.fs, tid, id, reply) else {
            return;
        };
        match reader {
            Some(reader) if reader.is_local() => {
                starting.watch();
                self.read_local(reader, guard);
            }
            reader => {
                let service = Arc::clone(self);
                starting.poll(async move {
                    let reader = match reader {
                        Some(reader) => Ok(reader),
                        None => service.fs.reader(ino, offset, size).await,
                    };
                    match reader {
                        Ok(reader) => match reader.read().await {
                            Ok(data) => guard.answer(data.bytes(&[]).map_err(Into::into)),
                            Err(error) => guard.refuse(&error),
                        },
                        Err(error) => guard.refuse(&error),
                    }
                });
            }
        }
    }

    fn read_local(&self, reader: Reader, guard: ReplyGuard<ReplyData>) {
        let reader = Arc::new(reader);
        let own = Arc::clone(&reader);
        self.fs.run_local_io(&own, move || {
            if guard.is_answered() {
                return;
            }
            with_buffer(|buffer| match reader.read_blocking(buffer) {
                Ok(bytes) => guard.answer(bytes.get()),
                Err(error) => guard.refuse(&error),
            });
        });
    }
}
