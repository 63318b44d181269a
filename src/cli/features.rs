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
         without the features: {}\n\
         sources: directory, zip (stored, deflate, zstd), {}\n\
         transport: {}\n\
         built for: {} {}, {}",
        env!("CARGO_PKG_VERSION"),
        codec::names().collect::<Vec<_>>().join(" "),
        codec::NOT_BUILT_IN.join(" "),
        without_features(),
        store::remote_schemes()
            .map(|scheme| format!("{scheme}://"))
            .collect::<Vec<_>>()
            .join(" "),
        TRANSPORT,
        std::env::consts::ARCH,
        std::env::consts::OS,
        if cfg!(any(debug_assertions, feature = "test-faults")) {
            "for tests"
        } else if cfg!(feature = "quick") {
            "quick: not optimized, for the demo; scripts/install builds the release"
        } else {
            "release"
        },
    )
});

/// Returns the cargo features that this build lacks, each with what it adds.
fn without_features() -> String {
    let schemes =
        store::schemes_without_feature().map(|(scheme, feature)| (feature, format!("{scheme}://")));
    let codecs = codec::without_feature().map(|(codec, feature)| (feature, codec.to_owned()));
    let mut features: Vec<(&str, Vec<String>)> = Vec::new();
    let sixel = (!cfg!(feature = "sixel")).then(|| ("sixel", "--preview=sixel".to_owned()));
    for (feature, adds) in schemes.chain(codecs).chain(sixel) {
        match features.last_mut() {
            Some((last, all)) if *last == feature => all.push(adds),
            _ => features.push((feature, vec![adds])),
        }
    }
    let texts: Vec<_> = features
        .iter()
        .map(|(feature, adds)| format!("{feature} ({})", adds.join(" ")))
        .collect();
    match texts.is_empty() {
        true => "none".to_owned(),
        false => texts.join(", "),
    }
}

/// Returns the version and the features.
pub(super) fn text() -> &'static str {
    &TEXT
}
