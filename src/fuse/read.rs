//! READ, on the session thread, on the local I/O pool, or in a future.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use fuser::{INodeNo, ReplyData};

use super::Service;
use super::in_flight::{ErrorReply, ReplyGuard, RequestId};
use super::reply::report;
use crate::fs::{Data, FsError, Handle, Ino, Reader};

/// The reply of a read on the session thread. If a panic drops it unsent, it counts the panic and
/// sends EIO.
struct ReadReply<'a> {
    service: &'a Service,
    ino: INodeNo,
    since: Instant,
    reply: Option<ReplyData>,
}

/// A read that was pending at its first poll.
type PendingRead = Pin<Box<dyn Future<Output = Result<Data, FsError>> + Send>>;

impl ReadReply<'_> {
    fn answer(mut self, read: Result<Data, FsError>) {
        let data = read.as_ref().map_err(FsError::clone);
        match data.and_then(|data| Ok(data.bytes(&[])?)) {
            Ok(bytes) => {
                if let Some(reply) = self.reply.take() {
                    self.service.fs.stats().read(self.since.elapsed());
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
    fn answer(&self, read: Result<Data, FsError>) {
        let data = read.as_ref().map_err(FsError::clone);
        match data.and_then(|data| Ok(data.bytes(&[])?)) {
            Ok(bytes) => {
                if let Some(reply) = self.take() {
                    self.fs().stats().read(self.elapsed());
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
            since: Instant::now(),
            reply: Some(reply),
        };
        let reader = match self.fs.reader(ino, handle, offset, size).at_hand() {
            Some(Ok(reader)) => Some(reader),
            Some(Err(error)) => return reply.answer(Err(error)),
            None => None,
        };
        let mut pending = None;
        let reader = match reader {
            Some(reader) if reader.is_local() => match reader.read_at_hand() {
                Some(read) => return reply.answer(read),
                None => Some(reader),
            },
            // Most reads are ready at the first poll, which needs no state of a request in flight.
            Some(reader) if !self.tracker.may_repeat_a_failure() => {
                let mut read: PendingRead = Box::pin(async move { reader.read().await });
                let polled = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(read) = polled {
                    return reply.answer(read);
                }
                pending = Some(read);
                None
            }
            reader => reader,
        };
        let mut reply = reply;
        let Some(reply) = reply.reply.take() else {
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
        if let Some(read) = pending {
            // The CPU pool polls the same future again, so that it is woken from then on.
            return starting.spawn(async move { guard.answer(read.await) });
        }
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
                        None => service.fs.reader(ino, handle, offset, size).await,
                    };
                    match reader {
                        Ok(reader) => guard.answer(reader.read().await),
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
            guard.answer(reader.read_blocking());
        });
    }
}
