//! The memory limit of this process's cgroup, in version 2 (`memory.max`, `memory.high`) and
//! version 1 (`memory.limit_in_bytes`), and of all visible ancestor cgroups.
//!
//! `/proc/self/cgroup` has the path of the cgroup, and `/proc/self/mountinfo` the mountpoint of its
//! hierarchy. Both paths are relative to the root of the cgroup namespace. In a container, the
//! mount's root may be any cgroup.

use std::path::{Component, Path, PathBuf};

use super::mountinfo::parse_table;

/// Returns the smallest limit in bytes, if any is set. Tests use another `root` than `/`.
pub(super) fn memory_limit_bytes(root: &Path) -> Option<u64> {
    let cgroups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = std::fs::read(root.join("proc/self/mountinfo")).unwrap_or_default();
    let hierarchies = Hierarchy::all(&cgroups, &mounts);
    hierarchies
        .iter()
        .filter_map(|hierarchy| hierarchy.limit_bytes(root))
        .min()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A mounted cgroup hierarchy that limits memory, and the cgroup of this process in it.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    mountpoint: PathBuf,
    /// The path of the cgroup, relative to the mountpoint.
    cgroup: PathBuf,
}

impl Hierarchy {
    /// Returns the hierarchies of a process with these contents of `cgroup` and `mountinfo`.
    fn all(cgroups: &str, mounts: &[u8]) -> Vec<Self> {
        let hierarchies = parse_table(mounts).filter_map(|mount| {
            let version = match &*mount.kind {
                "cgroup2" => Version::Two,
                "cgroup" if mount.options().any(|option| option == "memory") => Version::One,
                _ => return None,
            };
            Some(Self {
                version,
                cgroup: below(&mount.root, cgroup_of(cgroups, version)?),
                mountpoint: mount.mountpoint,
            })
        });
        hierarchies.collect()
    }

    fn limit_bytes(&self, root: &Path) -> Option<u64> {
        let mountpoint = self.mountpoint.strip_prefix("/").ok()?;
        let mountpoint = root.join(mountpoint);
        let own = mountpoint.join(&self.cgroup);
        let levels = own
            .ancestors()
            .take_while(|level| level.starts_with(&mountpoint));
        let names: &[&str] = match self.version {
            Version::One => &["memory.limit_in_bytes"],
            Version::Two => &["memory.max", "memory.high"],
        };
        let files = levels.flat_map(|level| names.iter().map(move |name| level.join(name)));
        let limits = files.filter_map(|file| {
            // `max` means no limit.
            let text = std::fs::read_to_string(file).ok()?;
            text.trim().parse::<u64>().ok()
        });
        // Includes the limits of cgroups above the root of the mount.
        let hierarchical = match self.version {
            Version::One => hierarchical_limit_bytes(&own),
            Version::Two => None,
        };
        limits.chain(hierarchical).min()
    }
}

/// Returns the version 1 limit in `memory.stat`, which includes all ancestor cgroups.
fn hierarchical_limit_bytes(cgroup: &Path) -> Option<u64> {
    let stat = std::fs::read_to_string(cgroup.join("memory.stat")).ok()?;
    let mut lines = stat.lines();
    let limit = lines.find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?;
    limit.trim().parse().ok()
}

/// Returns the path of the process's cgroup: in version 1, that of the memory controller.
fn cgroup_of(cgroups: &str, version: Version) -> Option<&str> {
    cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_wanted = match version {
            Version::One => controllers.split(',').any(|name| name == "memory"),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        is_wanted.then_some(path)
    })
}

/// Returns the part of a cgroup's path below the root of a mount. Empty if the cgroup is not below
/// the root, such as that of a process outside of its cgroup namespace.
fn below(root: &Path, cgroup: &str) -> PathBuf {
    let is_plain = |path: &Path| {
        path.components()
            .all(|part| matches!(part, Component::Normal(_)))
    };
    let below = Path::new(cgroup).strip_prefix(root);
    below
        .ok()
        .filter(|below| is_plain(below))
        .map(Path::to_owned)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory tree with `/proc/self/cgroup`, `/proc/self/mountinfo` and cgroup files.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(cgroup: &str, mountinfo: &str) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            tree.file("proc/self/cgroup", cgroup)
                .file("proc/self/mountinfo", mountinfo)
        }

        fn file(self, path: &str, text: &str) -> Self {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            self
        }

        fn limit(&self) -> Option<u64> {
            memory_limit_bytes(self.0.path())
        }
    }

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn the_smallest_limit_of_all_levels_counts() {
        let tree = Tree::new("0::/a.slice/b.scope\n", V2)
            .file("sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n")
            .file("sys/fs/cgroup/a.slice/b.scope/memory.high", "max\n");
        assert_eq!(tree.limit(), None);
        let tree = tree.file("sys/fs/cgroup/a.slice/memory.max", "1073741824\n");
        assert_eq!(tree.limit(), Some(1 << 30));
        let tree = tree.file("sys/fs/cgroup/a.slice/b.scope/memory.high", "536870912\n");
        assert_eq!(tree.limit(), Some(512 << 20));
        // The limit of another cgroup does not apply.
        let tree = tree.file("sys/fs/cgroup/other/memory.max", "4096\n");
        assert_eq!(tree.limit(), Some(512 << 20));
        // In a container with a cgroup namespace, the limit is at the root of the mount.
        let tree = Tree::new("0::/\n", V2).file("sys/fs/cgroup/memory.max", "268435456");
        assert_eq!(tree.limit(), Some(256 << 20));
    }

    #[test]
    fn version_1_includes_limits_above_the_root_of_the_mount() {
        let cgroup = "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n";
        let file = "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes";
        let tree = Tree::new(cgroup, V1).file(file, "9223372036854771712\n");
        assert_eq!(tree.limit(), Some(9_223_372_036_854_771_712));
        let tree = tree.file(
            "sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
            "2000000000\n",
        );
        assert_eq!(tree.limit(), Some(2_000_000_000));
        // Docker without a cgroup namespace mounts the container's own cgroup, with its full path.
        let mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let tree = Tree::new(cgroup, mounts)
            .file("sys/fs/cgroup/memory/memory.limit_in_bytes", "900000000\n")
            .file(
                "sys/fs/cgroup/memory/memory.stat",
                "cache 0\nhierarchical_memory_limit 800000000\nhierarchical_memsw_limit 1\n",
            );
        assert_eq!(tree.limit(), Some(800_000_000));
    }

    #[test]
    fn a_mount_with_another_root_has_the_limit_of_its_own_directory() {
        let mounts = "35 31 0:32 /kubepods/pod1 /sys/fs/cgroup\\040x rw - cgroup2 cgroup2 rw\n";
        for cgroup in ["0::/\n", "0::/../other\n", "0::/kubepods/pod1/../x\n"] {
            let tree = Tree::new(cgroup, mounts).file("sys/fs/cgroup x/memory.max", "7340032\n");
            assert_eq!(tree.limit(), Some(7 << 20), "{cgroup}");
        }
    }

    #[test]
    fn without_cgroups_there_is_no_limit() {
        assert_eq!(Tree::new("", "").limit(), None);
        assert_eq!(Tree::new("0::/a\n", "").limit(), None);
        assert_eq!(Tree::new("", V2).limit(), None);
        let mounts = "35 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\nshort\n";
        assert_eq!(Tree::new("1:cpu:/a\nodd\n", mounts).limit(), None);
    }
}
