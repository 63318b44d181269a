//! Lines of fstab, parsed by the real mount(8).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::namespace::with_helper;
use crate::place::*;
use crate::servers::{Moto, Nginx, without_cloud_environment};
use crate::support::*;

fn binary() -> PathBuf {
    zarrfs().get_program().into()
}

/// Mounts by an fstab line and the mountpoint alone, lists the content and unmounts.
const BY_MOUNTPOINT: &str = r#"
    mount --fstab "$2/fstab" "$1"
    findmnt -no FSTYPE,SOURCE "$1"
    cat "$1/zarr.json"
    # What is mounted already is passed over.
    mount --fstab "$2/fstab" -a
    [ "$(findmnt -rno TARGET "$1" | wc -l)" = 1 ]
    umount "$1"
    # As at boot.
    mount --fstab "$2/fstab" -a
    findmnt -no FSTYPE "$1"
    umount "$1"
"#;

fn mounts_by(place: &Place, line: &str, source: &str) {
    fs::write(place.join("fstab"), format!("{line}\n")).unwrap();
    let mut command = with_helper(place, &binary(), BY_MOUNTPOINT);
    let all = output_of(without_cloud_environment(&mut command));
    let wanted = format!("fuse.zarrfs {source}\n{GROUP}fuse.zarrfs\n");
    assert_eq!(all.ok().out, wanted, "{line}: {all:?}");
    place.assert_untouched();
    fs::remove_dir_all(place.join("sbin")).unwrap();
}

#[test]
fn a_line_of_fstab_mounts_a_directory_or_a_zip() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let zip = place.zip_of(&store);
    let point = place.path.display();
    for (source, kind, options) in [
        (&zip, "zarrfs", "defaults,nofail,umask=027,ttl=5s"),
        (
            &store,
            "fuse.zarrfs",
            "ro,user,allow_other,formats=\"npy,chunks\"",
        ),
    ] {
        let source = source.to_str().unwrap();
        mounts_by(
            &place,
            &format!("{source} {point} {kind} {options} 0 0"),
            source,
        );
    }
}

#[test]
fn a_line_of_fstab_mounts_a_web_server_and_a_bucket_and_prints_no_secret() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    place.store();
    let point = place.path.display();
    let options = "_netdev,nofail,x-systemd.automount";

    let nginx = Nginx::start(place.dir());
    let url = nginx.url("store");
    mounts_by(&place, &format!("{url} {point} zarrfs {options} 0 0"), &url);
    let signed = format!("{url}?signature=hunter2");
    let line = format!("{signed} {point} zarrfs {options} 0 0");
    fs::write(place.join("fstab"), line).unwrap();
    let script = r#"mount -T "$2/fstab" "$1"; grep zarrfs /proc/mounts; umount "$1""#;
    let shown = output_of(&mut with_helper(&place, &binary(), script));
    assert!(
        shown.ok().out.contains(&url) && !shown.out.contains("hunter2"),
        "{shown:?}"
    );
    fs::remove_dir_all(place.join("sbin")).unwrap();

    let moto = Moto::start();
    moto.put("bucket", place.join("store").as_path());
    let keys = moto.enforce("bucket");
    let env = place.join("env");
    let (name, secret) = (&keys.name, &keys.secret);
    let text = format!(
        "# of the bucket\nAWS_ACCESS_KEY_ID={name}\nexport AWS_SECRET_ACCESS_KEY='{secret}'\n"
    );
    fs::write(&env, text).unwrap();
    fs::set_permissions(&env, fs::Permissions::from_mode(0o600)).unwrap();
    let (endpoint, env) = (moto.endpoint(), env.display());
    let options = format!("{options},endpoint_url={endpoint},region=us-east-1,env_file={env}");
    let line = format!("s3://bucket {point} zarrfs {options} 0 0");
    mounts_by(&place, &line, "s3://bucket");
}

/// The fstab is that of a namespace, not of the machine.
#[test]
fn an_ordinary_user_mounts_an_fstab_entry_with_the_option_user() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    let binary = place.open_to_nobody();
    let line = format!(
        "{} {} zarrfs noauto,user 0 0\n",
        store.display(),
        place.path.display()
    );
    fs::write(place.join("fstab"), line).unwrap();
    let script = r#"
        mount --bind "$2/fstab" /etc/fstab
        as_nobody mount "$1"
        as_nobody cat "$1/zarr.json"
        as_nobody umount "$1"
        ! findmnt "$1"
    "#;
    let all = output_of(&mut with_helper(&place, &binary, script));
    assert_eq!(all.ok().out, GROUP, "{all:?}");
    place.assert_untouched();
}
