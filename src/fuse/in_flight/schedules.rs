//! Schedules of requests in flight, and of their end by a deadline.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use fuser::{Errno, INodeNo};

use super::tests::fs;
use super::{RequestId, RequestTracker};
use crate::sync::schedules::explore;
use crate::sync::{oneshot, thread};

/// Runs two requests, which others complete, and checks that each has one reply.
fn run(deadline: Duration, replies: &[i32]) {
    let fs = fs();
    let tracker = RequestTracker::start(deadline).unwrap();
    let requests = [1, 2].map(|ino| {
        let (tracker, fs) = (Arc::clone(&tracker), Arc::clone(&fs));
        let (sender, receiver) = channel();
        let (open, gate) = oneshot::channel::<()>();
        let request = thread::spawn(move || {
            let id = RequestId {
                operation: "getattr",
                ino: INodeNo(ino),
                name: None,
                bytes: None,
            };
            let (guard, unpolled) = tracker.begin(&fs, 0, id, sender).unwrap();
            unpolled.poll(async move {
                let _ = gate.await;
                if let Some(reply) = guard.take() {
                    reply.send(0).unwrap();
                }
            });
        });
        let opener = thread::spawn(move || {
            let _ = open.send(());
        });
        (request, opener, receiver)
    });
    for (request, opener, receiver) in requests {
        request.join().unwrap();
        opener.join().unwrap();
        let reply = loop {
            match receiver.try_recv() {
                Ok(reply) => break reply,
                Err(_) => thread::yield_now(),
            }
        };
        assert!(replies.contains(&reply), "{reply}");
        assert!(receiver.try_recv().is_err(), "a second reply");
    }
    tracker.end();
    assert_eq!(fs.document()["panics"], 0);
}

#[test]
fn a_request_is_answered_once_when_its_future_completes() {
    explore(|| run(Duration::from_secs(3600), &[0]));
}

#[test]
fn a_request_is_answered_once_when_its_deadline_passes_as_its_future_completes() {
    explore(|| run(Duration::ZERO, &[0, Errno::ETIMEDOUT.code()]));
}
