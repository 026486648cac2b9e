//! Images made by hand: where the tool needs a kernel's driver (md, ZFS, VDO, DRBD), a device, or is no package.

use super::image::Image;

const MIB: u64 = 1 << 20;
const UUID: [u8; 16] = [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE, 1, 2, 3, 4, 5, 6, 7, 8];
const AS_TEXT: &str = "10325476-98ba-dcfe-0102-030405060708";

/// What is found, and as what `blkid` knows it, if it does.
#[track_caller]
fn is_found(image: &Image, name: &str, blkid: Option<&str>, uuid: Option<&str>, label: Option<&str>, places: &[u64]) {
    assert_eq!(image.names(), [name]);
    let found = &image.find(4096)[0];
    assert_eq!((found.uuid.as_deref(), found.label.as_deref()), (uuid, label), "{name}");
    assert_eq!(found.places, places, "{name}");
    if let (Some(blkid), Some(theirs)) = (blkid, image.blkid()) {
        assert_eq!(theirs.get("TYPE").map(String::as_str), Some(blkid), "{name}: {theirs:?}");
        if let (Some(uuid), Some(theirs)) = (uuid, theirs.get("UUID")) {
            assert_eq!(uuid, theirs, "{name}");
        }
    }
}

/// A superblock of md, version 1 (Linux, include/uapi/linux/raid/md_p.h), at sector `sector`.
fn md_superblock(sector: u64) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    bytes[..8].copy_from_slice(&[0xFC, 0x4E, 0x2B, 0xA9, 1, 0, 0, 0]);
    bytes[16..32].copy_from_slice(&UUID);
    bytes[32..41].copy_from_slice(b"host:data");
    bytes[144..152].copy_from_slice(&sector.to_le_bytes());
    // sb_csum: the sum of all words, folded.
    let sum: u64 = bytes.chunks_exact(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
    let sum = (sum >> 32) as u32 + sum as u32;
    bytes[216..220].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn md_of_every_version() {
    for (name, at) in [("md RAID 1.1", 0), ("md RAID 1.2", 4096), ("md RAID 1.0", 64 * MIB - 8192)] {
        let image = Image::new(64 * MIB);
        image.put(at, &md_superblock(at / 512));
        is_found(&image, name, Some("linux_raid_member"), Some(AS_TEXT), Some("host:data"), &[at]);
        // One that was copied from elsewhere, in a file for instance.
        let image = Image::new(64 * MIB);
        image.put(at, &md_superblock(at / 512 + 1));
        assert_eq!(image.names(), [""; 0]);
    }
    let image = Image::new(64 * MIB + 65536);
    let words: Vec<u8> = [0xA92B_4EFCu32, 0, 90, 0, 0, 0x7654_3210].into_iter().flat_map(u32::to_le_bytes).collect();
    image.put(64 * MIB, &words);
    let rest: Vec<u8> = [0xFEDC_BA98u32, 0x0403_0201, 0x0807_0605].into_iter().flat_map(u32::to_le_bytes).collect();
    image.put(64 * MIB + 52, &rest);
    let uuid = Some("76543210-fedc-ba98-0403-020108070605");
    is_found(&image, "md RAID 0.90", Some("linux_raid_member"), uuid, None, &[64 * MIB]);
}

/// A pair of an XDR list of names and values, of type `kind`.
fn pair(name: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    let mut tail = (name.len() as u32).to_be_bytes().to_vec();
    tail.extend(name.as_bytes());
    tail.resize(tail.len().next_multiple_of(4), 0);
    tail.extend(kind.to_be_bytes());
    tail.extend(1u32.to_be_bytes());
    tail.extend(value);
    tail.resize(tail.len().next_multiple_of(4), 0);
    let mut pair = (tail.len() as u32 + 8).to_be_bytes().to_vec();
    pair.extend(64u32.to_be_bytes());
    pair.extend(tail);
    pair
}

/// The names and values of a vdev label with their checksum's mark (OpenZFS, include/sys/vdev_impl.h).
fn zfs_label() -> Vec<u8> {
    let string = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    let mut bytes = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    bytes.extend(pair("version", 8, &5000u64.to_be_bytes()));
    bytes.extend(pair("name", 9, &string("tank")));
    bytes.extend(pair("state", 8, &0u64.to_be_bytes()));
    bytes.extend(pair("pool_guid", 8, &1234567890123456789u64.to_be_bytes()));
    bytes.extend(pair("hostname", 9, &string("somebody")));
    bytes.resize((112 << 10) - 40, 0);
    bytes.extend(0x0210_DA7A_B10C_7A11u64.to_le_bytes());
    bytes.resize(112 << 10, 0);
    // Behind it are the uberblocks.
    for _ in 0..8 {
        bytes.extend(0x00BA_B10Cu64.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(1024), 0);
    }
    bytes
}

#[test]
fn zfs_at_either_end() {
    // The size is no multiple of a label's.
    let size = 64 * MIB + (192 << 10);
    let labels = [0, 256 << 10, 64 * MIB - (512 << 10), 64 * MIB - (256 << 10)].map(|at| at + (16 << 10));
    for kept in [&labels[..], &labels[..1], &labels[1..2], &labels[2..3], &labels[3..]] {
        let image = Image::new(size);
        kept.iter().for_each(|at| image.put(*at, &zfs_label()));
        let guid = Some("1234567890123456789");
        is_found(&image, "ZFS", Some("zfs_member"), guid, Some("tank"), kept);
    }
    let image = Image::new(size);
    image.put(labels[0], &zfs_label()[..(112 << 10) - 40]);
    assert_eq!(image.names(), [""; 0], "cleared labels are not taken for a pool");
}

#[test]
fn bluestore_and_its_copies() {
    let label = format!("bluestore block device\n{AS_TEXT}\n");
    let image = Image::new(11 << 30);
    image.put(0, label.as_bytes());
    is_found(&image, "Ceph BlueStore", Some("ceph_bluestore"), Some(AS_TEXT), None, &[0]);
    image.put(1 << 30, label.as_bytes());
    image.put(10 << 30, label.as_bytes());
    is_found(&image, "Ceph BlueStore", None, Some(AS_TEXT), None, &[0, 1 << 30, 10 << 30]);
    image.put(0, &[0; 64]);
    is_found(&image, "Ceph BlueStore", None, Some(AS_TEXT), None, &[1 << 30, 10 << 30]);
}

/// One that is known by its mark, with bytes put here and there.
#[track_caller]
fn marked(name: &str, blkid: Option<&str>, uuid: Option<&str>, at: u64, bytes: &[(u64, &[u8])]) {
    let image = Image::new(64 * MIB);
    bytes.iter().for_each(|(offset, bytes)| image.put(at + offset, bytes));
    is_found(&image, name, blkid, uuid, None, &[at]);
    // Without its last byte the mark is none.
    let (offset, mark) = bytes[0];
    image.put(at + offset + mark.len() as u64 - 1, &[mark[mark.len() - 1] ^ 0x10]);
    assert_eq!(image.names(), [""; 0], "{name}");
}

#[test]
fn what_is_known_by_its_mark() {
    let end = 64 * MIB;
    marked("VDO", Some("vdo"), Some(AS_TEXT), 0, &[(0, b"dmvdo001"), (40, &UUID)]);
    marked("DRBD", Some("drbd"), None, end - 4096, &[(60, &[0x83, 0x74, 0x02, 0x6D])]);
    marked("Stratis", None, None, 512, &[(4, b"!Stra0tis\x86\xff\x02^\x41rh")]);
    marked("device-mapper snapshot", Some("DM_snapshot_cow"), None, 0, &[(0, b"SnAp"), (8, &[1])]);
    marked("dm-integrity", None, None, 0, &[(0, b"integrt\0")]);
    marked("Intel RAID", Some("isw_raid_member"), None, end - 1024, &[(0, b"Intel Raid ISM Cfg Sig. ")]);
    marked("DDF RAID", None, None, end - 512, &[(0, &[0xDE, 0x11, 0xDE, 0x11])]);
    marked("VMFS volume", Some("VMFS_volume_member"), None, MIB, &[(0, &[0x0D, 0xD0, 0x01, 0xC0])]);
    marked("VMFS", Some("VMFS"), None, 2 * MIB, &[(0, &[0x5E, 0xF1, 0xAB, 0x2F])]);
    marked("VxFS", Some("vxfs"), None, 1024, &[(0, &[0xF5, 0xFC, 0x01, 0xA5])]);
    marked("UFS", Some("ufs"), None, 65536, &[(1372, &[0x19, 0x01, 0x54, 0x19])]);
    marked("HFS+", None, None, 1024, &[(0, b"H+\0\x04"), (40, &[0, 0, 0x10, 0])]);
    marked("ReFS", Some("ReFS"), None, 0, &[(0, b"\0\0\0ReFS\0")]);
    marked("Reiser4", Some("reiser4"), Some(AS_TEXT), 65536, &[(0, b"ReIsEr4"), (20, &UUID)]);
    marked("ZoneFS", None, Some(AS_TEXT), 0, &[(0, b"SFOZ"), (40, &UUID)]);
    marked(
        "bcachefs",
        None,
        Some(AS_TEXT),
        4096,
        &[
            (24, &[0xC6, 0x85, 0x73, 0xF6, 0x66, 0xCE, 0x90, 0xA9, 0xD9, 0x6A, 0x60, 0xCF, 0x80, 0x3D, 0xF7, 0xEF]),
            (56, &UUID),
        ],
    );
    marked("BitLocker", None, None, 0, &[(3, b"-FVE-FS-"), (446, b"Press"), (510, &[0x55, 0xAA])]);
    marked("BSD disklabel", None, None, 512, &[(0, &[0x57, 0x45, 0x56, 0x82]), (132, &[0x57, 0x45, 0x56, 0x82])]);
    marked("Apple partition map", None, None, 0, &[(512, b"PM"), (0, b"ER\x02\0")]);
    marked("hibernated system", Some("swsuspend"), None, 0, &[(4086, b"S1SUSPEND")]);
    marked("SPDK blobstore", None, None, 0, &[(0, b"SPDKBLOB")]);
    marked("SPDK RAID", None, None, 0, &[(0, b"SPDKRAID")]);
    marked("Oracle ASM disk", None, None, 0, &[(32, b"ORCLDISK")]);
}
