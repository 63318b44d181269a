//! Open values of references that are ranges of other objects.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use crate::store::{
    Data, Key, LocalObject, LocalReadError, Object, ReadMode, Stat, StoreError, Version, in_memory,
};

/// Converts the failure to open a target into an error of a key: the key exists, but its bytes do not.
pub(super) fn target_error(
    error: StoreError,
    key: &Key,
    label: &dyn std::fmt::Display,
) -> StoreError {
    let key = key.clone();
    match error {
        StoreError::NotFound { .. } | StoreError::NotAPrefix { .. } => StoreError::Unavailable {
            key,
            what: format!("its target {label} does not exist"),
        },
        StoreError::NotAFile { what, .. } => StoreError::Corrupt {
            key,
            what: format!("its target {label} is {what}, neither a file nor a directory"),
        },
        StoreError::Denied { what, status, .. } => StoreError::Denied {
            key,
            what: format!("its target {label}: {what}"),
            status,
        },
        StoreError::Stale { what, .. } => StoreError::Stale {
            key,
            what: format!("its target {label}: {what}"),
        },
        StoreError::Corrupt { what, .. } => StoreError::Corrupt {
            key,
            what: format!("its target {label}: {what}"),
        },
        StoreError::Unavailable { what, .. } => StoreError::Unavailable {
            key,
            what: format!("its target {label}: {what}"),
        },
        StoreError::Unsupported { what, .. } => StoreError::Unsupported {
            key,
            what: format!("its target {label}: {what}"),
        },
        StoreError::TimedOut { what, .. } => StoreError::TimedOut {
            key,
            what: format!("{what} from its target {label}"),
        },
        error => error.with_key(key),
    }
}

/// Checks that a span lies within a target of this size in bytes.
///
/// # Errors
/// [`StoreError::Corrupt`] if the span exceeds the target.
pub(super) fn check_span(
    key: &Key,
    label: &str,
    span: &Range<u64>,
    size_bytes: u64,
) -> Result<(), StoreError> {
    if span.start <= span.end && span.end <= size_bytes {
        return Ok(());
    }
    Err(StoreError::Corrupt {
        key: key.clone(),
        what: format!(
            "the reference is to {} bytes at offset {} of {label}, which has {size_bytes} bytes",
            span.end.saturating_sub(span.start),
            span.start
        ),
    })
}

/// A range of another object.
#[derive(Debug)]
pub(super) struct SpanObject {
    object: Arc<dyn Object>,
    key: Key,
    label: String,
    span: Range<u64>,
    stat: Stat,
}

impl SpanObject {
    /// `label` names the target in messages.
    pub(super) fn open(
        object: Arc<dyn Object>,
        key: &Key,
        label: &str,
        span: Range<u64>,
        stat: Stat,
    ) -> Result<Arc<dyn Object>, StoreError> {
        check_span(key, label, &span, object.size_bytes())?;
        Ok(Arc::new(Self {
            object,
            key: key.clone(),
            label: label.to_owned(),
            span,
            stat,
        }))
    }

    /// Converts a read of the span into a read of the object.
    fn shifted(&self, offset: u64, size_bytes: usize) -> Result<(u64, usize), StoreError> {
        let start = self.span.start.saturating_add(offset).min(self.span.end);
        let left = self.span.end - start;
        Ok((start, in_memory(left.min(size_bytes as u64))?))
    }

    fn error(&self, error: StoreError) -> StoreError {
        target_error(error, &self.key, &self.label)
    }
}

#[async_trait]
impl Object for SpanObject {
    fn size_bytes(&self) -> u64 {
        self.stat.size_bytes
    }

    fn version(&self) -> Version {
        self.stat.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        let unchanged = self.object.stat();
        unchanged.map_err(|error| self.error(error))?;
        Ok(self.stat)
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        let (start, length) = self.shifted(offset, size_bytes)?;
        let read = self.object.read(start, length).await;
        read.map_err(|error| self.error(error))
    }

    fn as_local(&self) -> Option<&dyn LocalObject> {
        self.object.as_local().map(|_| self as _)
    }

    fn is_parallel(&self) -> bool {
        self.object.is_parallel()
    }

    async fn prefetch(&self, ranges: &[Range<u64>]) {
        let at = |offset: u64| self.span.start.saturating_add(offset).min(self.span.end);
        let shifted = ranges.iter().map(|range| at(range.start)..at(range.end));
        self.object.prefetch(&shifted.collect::<Vec<_>>()).await;
    }
}

impl LocalObject for SpanObject {
    fn read_local(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
        mode: ReadMode,
    ) -> Result<Data, LocalReadError> {
        let (start, length) = self.shifted(offset, size_bytes)?;
        let Some(local) = self.object.as_local() else {
            return Err(StoreError::internal("a local span of a remote object").into());
        };
        let read = local.read_local(start, length, buffer, mode);
        read.map_err(|error| match error {
            LocalReadError::Failed(error) => self.error(error).into(),
            LocalReadError::WouldBlock => LocalReadError::WouldBlock,
        })
    }
}
