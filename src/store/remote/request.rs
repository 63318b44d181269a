//! How one request is sent: counted, within the limit of concurrent requests, and retried within a deadline.

pub(super) mod body;
pub(super) mod limit;
pub(super) mod missing_status;
pub(super) mod retry;
pub(super) mod transfer_stats;
