//! READ: the reply to one, on the thread that took it and on a worker.

use std::sync::Arc;

use fuser::{INodeNo, ReplyData};

use super::Service;
use super::reply::report;
use super::waiting::{Asked, Claim, Refuse};
use crate::fs::{FsError, LaterReply, ReadReply};

/// The reply to a read; dropped unanswered, it says EIO and counts as a panic.
pub(super) struct Read<'a> {
    pub(super) service: &'a Arc<Service>,
    pub(super) tid: u32,
    pub(super) ino: INodeNo,
    pub(super) offset: u64,
    pub(super) size: u32,
    /// Taken when it is used.
    pub(super) reply: Option<ReplyData>,
}

impl Read<'_> {
    fn refuse(&mut self, error: &FsError) {
        if let Some(reply) = self.reply.take() {
            reply.refuse(report(&self.service.fs, "read", self.ino, None, error));
        }
    }
}

impl ReadReply for Read<'_> {
    type Later = Claim<ReplyData>;

    fn answer(mut self, result: Result<&[u8], FsError>) {
        match (result, self.reply.take()) {
            (Ok(bytes), Some(reply)) => reply.data(bytes),
            (Err(error), reply) => {
                self.reply = reply;
                self.refuse(&error);
            }
            (Ok(_), None) => {}
        }
    }

    fn later(mut self) -> Option<Claim<ReplyData>> {
        let asked = Asked {
            operation: "read",
            ino: self.ino,
            name: None,
            bytes: Some(self.offset..self.offset.saturating_add(self.size.into())),
        };
        let fs = &self.service.fs;
        let reply = self.reply.take()?;
        self.service.watch.begin(fs, self.tid, asked, reply)
    }
}

impl Drop for Read<'_> {
    fn drop(&mut self) {
        if self.reply.is_some() {
            self.service.fs.stats().panicked();
            self.refuse(&FsError::Panicked);
        }
    }
}

impl LaterReply for Claim<ReplyData> {
    fn is_answered(&self) -> bool {
        Claim::is_answered(self)
    }

    fn answer(self, result: Result<&[u8], FsError>) {
        match result {
            Ok(bytes) => {
                if let Some(reply) = self.take() {
                    reply.data(bytes);
                }
            }
            Err(error) => self.refuse(&error),
        }
    }
}
