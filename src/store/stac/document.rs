//! Reads a STAC document: its kind and its assets. All other members are skipped without building their values.

use std::collections::BTreeMap;
use std::fmt;

use serde_core::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{joined, short};

/// The largest number of assets.
pub(super) const MAX_ASSETS: usize = 10_000;
/// The largest number of texts in one list, such as roles.
const MAX_TEXTS: usize = 16;

/// The media types of Zarr hierarchies, without parameters.
const ZARR_TYPES: [&str; 4] = [
    "application/vnd+zarr",
    "application/vnd.zarr",
    "application/x-zarr",
    "application/zarr",
];
/// The media type of Icechunk repositories.
const ICECHUNK_TYPE: &str = "application/vnd.zarr+icechunk";
/// The media type of references in JSON, and the roles that tell them from other JSON documents.
const JSON_TYPE: &str = "application/json";
const REFERENCE_ROLES: [&str; 2] = ["references", "index"];
/// The ends of paths of Zarr hierarchies, in lower case.
const ZARR_ENDS: [&str; 2] = [".zarr", ".zarr.zip"];

/// What a STAC document describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DocumentKind {
    Item,
    Collection,
    Catalog,
}

impl DocumentKind {
    /// Returns the kind with this value of the member `type`.
    fn of_type(text: &str) -> Option<Self> {
        match text {
            "Feature" => Some(Self::Item),
            "Collection" => Some(Self::Collection),
            "Catalog" => Some(Self::Catalog),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Item => "item",
            Self::Collection => "collection",
            Self::Catalog => "catalog",
        }
    }
}

/// What zarrfs opens an asset as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AssetKind {
    /// What is found there: a hierarchy, a zip archive of one, or references.
    Zarr,
    /// An Icechunk repository.
    Icechunk,
}

/// An asset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Asset {
    pub(super) href: String,
    pub(super) media_type: Option<String>,
    roles: Vec<String>,
    /// The version of an Icechunk repository: a branch, a tag or a snapshot.
    pub(super) version: Option<String>,
}

impl Asset {
    /// Returns what the asset is opened as; `None` if it is no Zarr.
    pub(super) fn kind(&self) -> Option<AssetKind> {
        let media_type = self.media_type.as_deref().unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        if essence == ICECHUNK_TYPE {
            return Some(AssetKind::Icechunk);
        }
        let path = self.href.split(['?', '#']).next().unwrap_or_default();
        let path = path.trim_end_matches('/').to_ascii_lowercase();
        let has_role = || {
            let mut roles = self.roles.iter();
            roles.any(|role| REFERENCE_ROLES.contains(&role.as_str()))
        };
        let is_zarr = ZARR_TYPES.contains(&essence.as_str())
            || ZARR_ENDS.iter().any(|end| path.ends_with(end))
            || (essence == JSON_TYPE && has_role());
        is_zarr.then_some(AssetKind::Zarr)
    }

    /// Describes the asset for a message.
    pub(super) fn describe(&self, name: &str) -> String {
        let media_type = self.media_type.as_deref().map(short);
        let media_type = media_type.unwrap_or_else(|| "no type".into());
        format!("{} ({media_type})", short(name))
    }
}

/// A STAC document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) kind: DocumentKind,
    /// By name. Of several assets with one name, the last one counts, as in other readers of JSON.
    pub(super) assets: BTreeMap<String, Asset>,
    /// Whether the document has more assets.
    pub(super) is_cut: bool,
}

impl Document {
    /// Reads a document; `None` if it is not JSON, or not a document of STAC.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let members: Members = serde_json::from_slice(text).ok()?;
        members.version?;
        Some(Self {
            kind: DocumentKind::of_type(&members.kind?)?,
            assets: members.assets.assets,
            is_cut: members.assets.is_cut,
        })
    }

    pub(super) fn has_zarr(&self) -> bool {
        self.assets.values().any(|asset| asset.kind().is_some())
    }

    /// Describes the assets of a document in which none is Zarr.
    pub(super) fn describe_assets(&self) -> String {
        match (self.assets.is_empty(), self.kind) {
            (true, DocumentKind::Collection) => {
                "it has no assets: name one of its items, which are not searched".into()
            }
            (true, _) => "it has no assets".into(),
            (false, _) => {
                let assets = self.assets.iter();
                let assets = assets.map(|(name, asset)| asset.describe(name));
                format!("its assets are {}", joined(assets, ", "))
            }
        }
    }
}

/// The members of a document that are read.
#[derive(Default)]
struct Members {
    version: Option<String>,
    kind: Option<String>,
    assets: Assets,
}

#[derive(Default)]
struct Assets {
    assets: BTreeMap<String, Asset>,
    is_cut: bool,
}

/// The text in a value, or the texts in a list; none of any other value.
#[derive(Default)]
struct Texts(Vec<String>);

impl Texts {
    fn first(self) -> Option<String> {
        self.0.into_iter().next()
    }
}

/// Implements `Deserialize` for the result of a visitor that accepts a value of any type.
macro_rules! deserialize_any {
    ($result:ty, $visitor:ident) => {
        impl<'de> Deserialize<'de> for $result {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any($visitor)
            }
        }
    };
}

/// The values in which a visitor finds nothing: all but the ones that it reads.
macro_rules! nothing_in_scalars {
    () => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
}

macro_rules! nothing_in_texts_and_lists {
    () => {
        nothing_in_scalars!();

        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
}

deserialize_any!(Members, MembersVisitor);
deserialize_any!(Assets, AssetsVisitor);
deserialize_any!(Asset, AssetVisitor);
deserialize_any!(Texts, TextsVisitor);

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Members::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "stac_version" => members.version = map.next_value::<Texts>()?.first(),
                "type" => members.kind = map.next_value::<Texts>()?.first(),
                "assets" => members.assets = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(members)
    }
}

struct AssetsVisitor;

impl<'de> Visitor<'de> for AssetsVisitor {
    type Value = Assets;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("assets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Assets, A::Error> {
        let mut found = Assets::default();
        while let Some(name) = map.next_key::<String>()? {
            if found.assets.len() == MAX_ASSETS && !found.assets.contains_key(&name) {
                found.is_cut = true;
                map.next_value::<IgnoredAny>()?;
            } else {
                found.assets.insert(name, map.next_value()?);
            }
        }
        Ok(found)
    }

    nothing_in_texts_and_lists!();
}

struct AssetVisitor;

impl<'de> Visitor<'de> for AssetVisitor {
    type Value = Asset;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an asset")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Asset, A::Error> {
        let mut asset = Asset::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "href" => asset.href = map.next_value::<Texts>()?.first().unwrap_or_default(),
                "type" => asset.media_type = map.next_value::<Texts>()?.first(),
                "roles" => asset.roles = map.next_value::<Texts>()?.0,
                "version" => asset.version = map.next_value::<Texts>()?.first(),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(asset)
    }

    nothing_in_texts_and_lists!();
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<Texts, E> {
        Ok(Texts(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
        let mut texts = Vec::new();
        while let Some(found) = list.next_element::<Texts>()? {
            let room = MAX_TEXTS.saturating_sub(texts.len());
            texts.extend(found.0.into_iter().take(room));
        }
        Ok(Texts(texts))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Texts::default())
    }

    nothing_in_scalars!();
}
