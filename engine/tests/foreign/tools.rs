//! Images of the real tools.

use std::process::{Command, Stdio};

use super::image::{Image, PATH};

const MIB: u64 = 1 << 20;

/// How an image is made, and what is to be found.
struct Case {
    /// What is found, in the order of places.
    names: &'static [&'static str],
    /// The tool, and Debian's package of it.
    tool: &'static str,
    package: &'static str,
    mib: u64,
    /// For a shell: `$IMAGE` is the file, `$LOOP` a loop device on it where it is named.
    script: &'static str,
    /// What the script calls it.
    label: Option<&'static str>,
}

const fn case(names: &'static [&'static str], tool: &'static str, package: &'static str, script: &'static str) -> Case {
    Case { names, tool, package, mib: 64, script, label: None }
}

impl Case {
    const fn of(mut self, mib: u64) -> Self {
        self.mib = mib;
        self
    }

    const fn labelled(mut self, label: &'static str) -> Self {
        self.label = Some(label);
        self
    }

    /// The image; `None`, and it is said, where this machine cannot make it.
    fn make(&self) -> Option<Image> {
        let image = Image::new(self.mib * MIB);
        let (path, folder) = (image.path(), image.folder());
        std::fs::create_dir(folder.join("files")).unwrap();
        std::fs::write(folder.join("files/one"), "a file").unwrap();
        let mut script = format!("set -e\ncommand -v {} >&2 || exit 77\n", self.tool);
        if self.script.contains("$LOOP") {
            script += "LOOP=$(losetup -f --show \"$IMAGE\") || exit 78\ntrap 'losetup -d \"$LOOP\"' EXIT\n";
        }
        script += self.script;
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).env("IMAGE", &path).env("PATH", PATH).current_dir(folder).stdin(Stdio::null());
        let output = command.output().unwrap();
        let because = match output.status.code() {
            Some(0) => return Some(image),
            Some(77) => format!("{} is missing: install Debian's {}", self.tool, self.package),
            Some(78) => "no loop device can be had".to_owned(),
            _ => panic!("{}: {}\n{}", self.script, output.status, String::from_utf8_lossy(&output.stderr)),
        };
        assert!(std::env::var_os("TENTPEG_NEED_TOOLS").is_none_or(|value| value != "1"), "{because}");
        println!("skipped: {}: {because}", self.names[0]);
        None
    }
}

const PASSPHRASE: &str = "printf phrase | cryptsetup luksFormat --batch-mode --pbkdf-force-iterations 1000";

fn cases() -> Vec<Case> {
    vec![
        case(&["ext2"], "mke2fs", "e2fsprogs", "mke2fs -q -F -t ext2 -L data $IMAGE").labelled("data"),
        case(&["ext3"], "mke2fs", "e2fsprogs", "mke2fs -q -F -t ext3 $IMAGE"),
        case(&["ext4"], "mke2fs", "e2fsprogs", "mke2fs -q -F -t ext4 -L data $IMAGE").labelled("data"),
        case(&["ext4"], "mke2fs", "e2fsprogs", "mke2fs -q -F -t ext4 -b 4096 $IMAGE"),
        case(&["ext journal"], "mke2fs", "e2fsprogs", "mke2fs -q -F -O journal_dev -L log $IMAGE").labelled("log"),
        case(&["XFS"], "mkfs.xfs", "xfsprogs", "mkfs.xfs -q -f -L data $IMAGE").of(512).labelled("data"),
        case(&["XFS"], "mkfs.xfs", "xfsprogs", "mkfs.xfs -q -f -s size=4096 $IMAGE").of(512),
        case(
            &["XFS journal"],
            "mkfs.xfs",
            "xfsprogs",
            "truncate -s 512M data; mkfs.xfs -q -f -l logdev=$IMAGE,size=64m data",
        ),
        case(&["Btrfs"], "mkfs.btrfs", "btrfs-progs", "mkfs.btrfs -q -L data $IMAGE").of(256).labelled("data"),
        case(&["F2FS"], "mkfs.f2fs", "f2fs-tools", "mkfs.f2fs -q -l data $IMAGE").of(256).labelled("data"),
        case(
            &["LVM2 physical volume"],
            "pvcreate",
            "lvm2",
            "pvcreate -q -ff -y --config 'devices{use_devicesfile=0} activation{udev_sync=0 udev_rules=0}' $LOOP",
        ),
        case(&["LUKS1"], "cryptsetup", "cryptsetup-bin", "LUKS --type luks1 $IMAGE -"),
        case(&["LUKS2"], "cryptsetup", "cryptsetup-bin", "LUKS --type luks2 --pbkdf pbkdf2 --label data $IMAGE -")
            .labelled("data"),
        case(&["dm-verity"], "veritysetup", "cryptsetup-bin", "truncate -s 1M data; veritysetup format data $IMAGE"),
        case(&["swap"], "mkswap", "util-linux", "mkswap -q -L data $IMAGE").labelled("data"),
        case(&["swap"], "mkswap", "util-linux", "mkswap -q -p 65536 $IMAGE"),
        case(&["NTFS"], "mkntfs", "ntfs-3g", "mkntfs -Q -q -F $IMAGE"),
        case(&["NTFS"], "mkntfs", "ntfs-3g", "mkntfs -Q -q -F -s 4096 $IMAGE"),
        case(&["exFAT"], "mkfs.exfat", "exfatprogs", "mkfs.exfat $IMAGE"),
        case(&["FAT"], "mkfs.vfat", "dosfstools", "mkfs.vfat -F 12 -n DATA $IMAGE").of(8).labelled("DATA"),
        case(&["FAT"], "mkfs.vfat", "dosfstools", "mkfs.vfat -F 16 -n DATA $IMAGE").labelled("DATA"),
        case(&["FAT32"], "mkfs.vfat", "dosfstools", "mkfs.vfat -F 32 -n DATA $IMAGE").labelled("DATA"),
        case(&["FAT32"], "mkfs.vfat", "dosfstools", "mkfs.vfat -F 32 -S 4096 -n DATA $IMAGE").of(512).labelled("DATA"),
        case(&["bcache"], "make-bcache", "bcache-tools", "make-bcache -B $IMAGE"),
        case(&["bcache"], "make-bcache", "bcache-tools", "make-bcache -C $IMAGE"),
        case(&["GPT partition table"], "sgdisk", "gdisk", "sgdisk -n 1:2048:4095 $IMAGE"),
        case(&["MBR partition table"], "sfdisk", "fdisk", "echo start=2048,size=4096,type=83 | sfdisk -q $IMAGE"),
        case(&["MBR without partitions"], "sfdisk", "fdisk", "echo label: dos | sfdisk -q $IMAGE"),
        case(&["GPT partition table"], "sfdisk", "fdisk", "echo label: gpt | sfdisk -q $IMAGE"),
        // A file system in a partition is the partition table's, and is not looked for.
        case(
            &["MBR partition table", "ISO 9660"],
            "xorriso",
            "xorriso",
            "xorriso -as mkisofs -quiet -V DATA -partition_offset 16 -o made files; cat made > $IMAGE",
        )
        .labelled("DATA"),
        case(
            &["ISO 9660"],
            "xorriso",
            "xorriso",
            "xorriso -as mkisofs -quiet -V DATA -o made files; cat made > $IMAGE",
        )
        .labelled("DATA"),
        case(&["UDF"], "mkudffs", "udftools", "mkudffs -l data $IMAGE"),
        case(&["UDF"], "mkudffs", "udftools", "mkudffs -b 4096 -l data $IMAGE"),
        case(
            &["SquashFS"],
            "mksquashfs",
            "squashfs-tools",
            "mksquashfs files made -quiet -no-progress; cat made > $IMAGE",
        ),
        case(&["EROFS"], "mkfs.erofs", "erofs-utils", "mkfs.erofs --quiet made files; cat made > $IMAGE"),
        case(&["JFS"], "mkfs.jfs", "jfsutils", "mkfs.jfs -q -L data $IMAGE").labelled("data"),
        case(&["ReiserFS"], "mkfs.reiserfs", "reiserfsprogs", "mkfs.reiserfs -q -ff -l data $IMAGE").labelled("data"),
        case(&["NILFS2"], "mkfs.nilfs2", "nilfs-tools", "mkfs.nilfs2 -q -L data $IMAGE").of(256).labelled("data"),
        case(&["OCFS2"], "mkfs.ocfs2", "ocfs2-tools", "yes | mkfs.ocfs2 -q -M local -L data -F $IMAGE")
            .of(256)
            .labelled("data"),
        case(&["GFS2"], "mkfs.gfs2", "gfs2-utils", "mkfs.gfs2 -q -O -p lock_nolock $IMAGE").of(256),
        case(&["APFS"], "mkapfs", "apfsprogs", "mkapfs -L data $IMAGE").of(1024),
    ]
}

#[test]
fn what_the_real_tools_make_is_recognised() {
    let mut made = 0;
    for mut case in cases() {
        let script = case.script.replace("LUKS", PASSPHRASE);
        case.script = script.leak();
        let Some(image) = case.make() else { continue };
        made += 1;
        image.round_up();
        assert_eq!(image.names(), case.names, "{}", case.script);
        let found = image.find(512).pop().unwrap();
        if let Some(label) = case.label {
            assert_eq!(found.label.as_deref(), Some(label), "{}", case.script);
        }
        let blkid = image.blkid().unwrap_or_default();
        if let (Some(uuid), Some(theirs)) = (&found.uuid, blkid.get("UUID").or(blkid.get("PTUUID"))) {
            assert_eq!(uuid.to_lowercase(), theirs.to_lowercase(), "{}: {blkid:?}", case.script);
        }
        println!("found: {found}");
    }
    assert!(made > 0, "no tool at all");
}

/// Wipes the front of what a case makes, and finds its copies.
#[track_caller]
fn found_without_its_front(names: &[&str], bytes: usize) {
    let cases = cases();
    let mut case = cases.into_iter().find(|case| case.names == names).unwrap();
    case.script = case.script.replace("LUKS", PASSPHRASE).leak();
    let Some(image) = case.make() else { return };
    let places = image.find(512)[0].places.clone();
    image.put(0, &vec![0; bytes]);
    assert_eq!(image.names(), names);
    let left = image.find(512)[0].places.clone();
    assert_eq!(left, places[1..], "{places:?}");
}

#[test]
fn copies_are_found_where_the_front_was_overwritten() {
    found_without_its_front(&["GPT partition table"], 34 * 512);
    found_without_its_front(&["LUKS2"], 4096);
    found_without_its_front(&["NTFS"], 8192);
    found_without_its_front(&["exFAT"], 512);
    found_without_its_front(&["Btrfs"], 1 << 20);
    found_without_its_front(&["F2FS"], 4096);
    found_without_its_front(&["NILFS2"], 1 << 20);
}
