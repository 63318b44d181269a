//! The features of this build, for `zarrfs --version`.

use std::sync::LazyLock;

#[cfg(feature = "mount")]
use crate::fuse::TRANSPORT;
use crate::{codec, store};

#[cfg(not(feature = "mount"))]
const TRANSPORT: &str = "none: built without the feature mount";

static TEXT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}\n\
         zarr: v2, v3, sharding, consolidated metadata\n\
         codecs: {}\n\
         not built in: {}\n\
         sources: directory, zip (stored, deflate, zstd), {}\n\
         transport: {}\n\
         built for: {} {}, {}",
        env!("CARGO_PKG_VERSION"),
        codec::names().collect::<Vec<_>>().join(" "),
        codec::NOT_BUILT_IN.join(" "),
        store::remote_schemes()
            .map(|scheme| format!("{scheme}://"))
            .collect::<Vec<_>>()
            .join(" "),
        TRANSPORT,
        std::env::consts::ARCH,
        std::env::consts::OS,
        if cfg!(any(debug_assertions, feature = "test-faults")) {
            "for tests"
        } else {
            "release"
        },
    )
});

/// Returns the version and the features.
pub(super) fn text() -> &'static str {
    &TEXT
}
