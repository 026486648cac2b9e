//! What is looked for. The offsets are those of the formats' own headers: the Linux kernel's (`include/uapi/linux`,
//! `fs/*`), UEFI 2.10 section 5 for GPT, LUKS2 1.1, ECMA-119 and ECMA-167, and each project's own for the rest.
//!
//! Which rows are tested on images of the real tools, and which on images made by hand, stands in `tests`.

use super::signature::Field::{By, Guid, Lvm, Serial32, Serial64, Text, Utf16, Uuid, Words};
use super::signature::Place::{Block, End, EndBlock, Start};
use super::signature::{Place, Signature, Structure};
use super::zfs;

pub(super) const GPT: &str = "GPT partition table";
pub(super) const PROTECTIVE_MBR: &str = "protective MBR";
pub(super) const EMPTY_MBR: &str = "MBR without partitions";

const FRONT: &[Place] = &[Start(0)];
const AT_1K: &[Place] = &[Start(1024)];
const AT_32K: &[Place] = &[Start(32 << 10)];
const AT_64K: &[Place] = &[Start(64 << 10)];

/// Marks a boot sector, and an MBR.
const BOOT: &[(usize, &[u8])] = &[(510, &[0x55, 0xAA])];
const EXT: &[(usize, &[u8])] = &[(56, &[0x53, 0xEF])];
/// A92B4EFCh, little-endian in version 1, and in 0.90 the host's.
const MD: &[u8] = &[0xFC, 0x4E, 0x2B, 0xA9];
const MD_BIG: &[u8] = &[0xA9, 0x2B, 0x4E, 0xFC];
const BCACHE: &[u8] = &[0xC6, 0x85, 0x73, 0xF6, 0x4E, 0x1A, 0x45, 0xCA, 0x82, 0x65, 0xF5, 0x7F, 0x48, 0xBA, 0x6D, 0x81];
const BCACHEFS: &[u8] =
    &[0xC6, 0x85, 0x73, 0xF6, 0x66, 0xCE, 0x90, 0xA9, 0xD9, 0x6A, 0x60, 0xCF, 0x80, 0x3D, 0xF7, 0xEF];

/// Where a volume recognition sequence may have its descriptors, of 2,048 bytes or of a larger block's.
const VOLUME_DESCRIPTORS: &[Place] =
    &[Start(34 << 10), Start(36 << 10), Start(38 << 10), Start(40 << 10), Start(44 << 10)];

pub(super) static SIGNATURES: &[Signature] = &[
    // Partition tables.
    Signature::new("MBR partition table", FRONT, BOOT).when(|s| is_mbr(s) && has_partitions(s, |kind| kind != 0xEE)),
    Signature::new(PROTECTIVE_MBR, FRONT, BOOT)
        .when(|s| is_mbr(s) && has_partitions(s, |kind| kind == 0xEE) && !has_partitions(s, |kind| kind != 0xEE)),
    Signature::new(EMPTY_MBR, FRONT, BOOT).when(|s| s.slice(446, 64).iter().all(|byte| *byte == 0)),
    // A table made for blocks of another size is worth as much.
    Signature::new(
        GPT,
        &[Block(1), Start(512), Start(4096), EndBlock(1), End { back: 512, of: 512 }, End { back: 4096, of: 4096 }],
        &[(0, b"EFI PART")],
    )
    .when(|s| (92..=4096).contains(&s.le32(12)))
    .uuid_at(Guid(56)),
    Signature::new("Apple partition map", FRONT, &[(0, b"ER")])
        .when(|s| is_power_of_two(s.be16(2).into(), 512, 4096) && s.has(s.be16(2).into(), b"PM")),
    Signature::new("BSD disklabel", &[Start(0), Start(512)], &[(0, &[0x57, 0x45, 0x56, 0x82])])
        .when(|s| s.le32(132) == 0x8256_4557),
    // File systems.
    Signature::new("ext2", AT_1K, EXT)
        .when(|s| ext_generation(s) == Some(2))
        .labelled(Text(120, 16))
        .uuid_at(Uuid(104)),
    Signature::new("ext3", AT_1K, EXT)
        .when(|s| ext_generation(s) == Some(3))
        .labelled(Text(120, 16))
        .uuid_at(Uuid(104)),
    Signature::new("ext4", AT_1K, EXT)
        .when(|s| ext_generation(s) == Some(4))
        .labelled(Text(120, 16))
        .uuid_at(Uuid(104)),
    Signature::new("ext journal", AT_1K, EXT).when(is_ext_journal).labelled(Text(120, 16)).uuid_at(Uuid(104)),
    Signature::new("XFS", FRONT, &[(0, b"XFSB")])
        .when(|s| is_power_of_two(s.be32(4), 512, 65536) && is_power_of_two(s.be16(102).into(), 512, 32768))
        .labelled(Text(108, 12))
        .uuid_at(Uuid(32)),
    Signature::new("XFS journal", FRONT, &[(0, &[0xFE, 0xED, 0xBA, 0xBE])])
        .when(|s| matches!(s.be32(8), 1 | 2) && matches!(s.be32(300), 1..=3))
        .uuid_at(Uuid(304)),
    Signature::new("Btrfs", &[Start(64 << 10), Start(64 << 20), Start(256 << 30)], &[(64, b"_BHRfS_M")])
        .when(|s| s.le64(48) == s.at)
        .labelled(Text(299, 256))
        .uuid_at(Uuid(32)),
    Signature::new("F2FS", &[Start(1024), Start(5120)], &[(0, &[0x10, 0x20, 0xF5, 0xF2])])
        .when(|s| (12..=16).contains(&s.le32(16)))
        .labelled(Utf16(124, 1024))
        .uuid_at(Uuid(108)),
    Signature::new("bcachefs", &[Start(4096)], &[(24, BCACHE), (24, BCACHEFS)])
        .when(|s| s.has(24, BCACHEFS) || s.le64(104) == s.at / 512)
        .labelled(Text(72, 32))
        .uuid_at(Uuid(56)),
    Signature::new(
        "NTFS",
        &[Start(0), EndBlock(1), End { back: 512, of: 512 }, End { back: 4096, of: 4096 }],
        &[(3, b"NTFS    ")],
    )
    .when(|s| s.has(510, &[0x55, 0xAA]) && is_power_of_two(s.le16(11).into(), 256, 4096))
    .uuid_at(Serial64(72)),
    Signature::new("exFAT", &[Start(0), Start(6 << 10), Start(48 << 10)], &[(3, b"EXFAT   ")])
        .when(|s| s.has(510, &[0x55, 0xAA]) && (9..=12).contains(&s.byte(108)))
        .uuid_at(Serial32(100)),
    Signature::new("FAT", FRONT, BOOT)
        .when(|s| is_fat(s) && s.le16(22) != 0)
        .labelled(Text(43, 11))
        .uuid_at(Serial32(39)),
    Signature::new("FAT32", FRONT, BOOT)
        .when(|s| is_fat(s) && s.le16(22) == 0)
        .labelled(Text(71, 11))
        .uuid_at(Serial32(67)),
    Signature::new("ReFS", FRONT, &[(0, b"\0\0\0ReFS\0")]),
    Signature::new("HFS+", AT_1K, &[(0, b"H+\0\x04"), (0, b"HX\0\x05")])
        .when(|s| is_power_of_two(s.be32(40), 512, 1 << 30)),
    Signature::new("APFS", FRONT, &[(32, b"NXSB")])
        .when(|s| s.le16(24) == 1 && is_power_of_two(s.le32(36), 4096, 65536))
        .uuid_at(Uuid(72)),
    Signature::new("ISO 9660", AT_32K, &[(0, b"\x01CD001\x01")]).labelled(Text(40, 32)),
    Signature::new("UDF", VOLUME_DESCRIPTORS, &[(0, b"\0NSR02\x01"), (0, b"\0NSR03\x01")]),
    Signature::new("SquashFS", FRONT, &[(0, b"hsqs")])
        .when(|s| s.le16(28) == 4 && is_shifted(s.le32(12), s.le16(22).into())),
    Signature::new("EROFS", AT_1K, &[(0, &[0xE2, 0xE1, 0xF5, 0xE0])])
        .when(|s| (9..=16).contains(&s.byte(12)))
        .labelled(Text(64, 16))
        .uuid_at(Uuid(48)),
    Signature::new("JFS", AT_32K, &[(0, b"JFS1")])
        .when(|s| matches!(s.le32(4), 1 | 2))
        .labelled(Text(152, 16))
        .uuid_at(Uuid(136)),
    Signature::new(
        "ReiserFS",
        &[Start(8 << 10), Start(64 << 10)],
        &[(52, b"ReIsErFs"), (52, b"ReIsEr2Fs"), (52, b"ReIsEr3Fs")],
    )
    .labelled(Text(100, 16))
    .uuid_at(Uuid(84)),
    Signature::new("Reiser4", AT_64K, &[(0, b"ReIsEr4")]).labelled(Text(36, 16)).uuid_at(Uuid(20)),
    Signature::new("NILFS2", &[Start(1024), End { back: 4096, of: 512 }], &[(6, &[0x34, 0x34])])
        .when(|s| s.le32(0) == 2 && (192..=1024).contains(&s.le16(8)) && s.le32(20) <= 6 && s.le64(32) != 0)
        .labelled(Text(168, 80))
        .uuid_at(Uuid(152)),
    Signature::new("OCFS2", &[Start(1024), Start(2048), Start(4096), Start(8192)], &[(0, b"OCFSV2")])
        .labelled(Text(272, 64))
        .uuid_at(Uuid(336)),
    Signature::new("GFS2", AT_64K, &[(0, &[0x01, 0x16, 0x19, 0x70])])
        .when(|s| s.be32(4) == 1 && is_shifted(s.be32(36), s.be32(40)))
        .labelled(Text(160, 64))
        .uuid_at(Uuid(256)),
    Signature::new(
        "UFS",
        &[Start(0), Start(8 << 10), Start(64 << 10), Start(256 << 10)],
        &[
            (1372, &[0x19, 0x01, 0x54, 0x19]),
            (1372, &[0x19, 0x54, 0x01, 0x19]),
            (1372, &[0x54, 0x19, 0x01, 0x00]),
            (1372, &[0x00, 0x01, 0x19, 0x54]),
        ],
    ),
    Signature::new(
        "VxFS",
        &[Start(1024), Start(8 << 10)],
        &[(0, &[0xF5, 0xFC, 0x01, 0xA5]), (0, &[0xA5, 0x01, 0xFC, 0xF5])],
    ),
    Signature::new("VMFS volume", &[Start(1 << 20)], &[(0, &[0x0D, 0xD0, 0x01, 0xC0])]),
    Signature::new("VMFS", &[Start(2 << 20)], &[(0, &[0x5E, 0xF1, 0xAB, 0x2F])]),
    Signature::new("ZoneFS", FRONT, &[(0, b"SFOZ")]).labelled(Text(8, 32)).uuid_at(Uuid(40)),
    // Volumes, RAID, caches.
    Signature::new("LVM2 physical volume", &[Start(0), Start(512), Start(1024), Start(1536)], &[(0, b"LABELONE")])
        .when(|s| s.has(24, b"LVM2 001") && s.le64(8) == s.at / 512)
        .uuid_at(Lvm(32)),
    Signature::new("md RAID 0.90", &[End { back: 64 << 10, of: 64 << 10 }], &[(0, MD)])
        .when(|s| s.le32(4) == 0 && s.le32(8) <= 91)
        .uuid_at(Words([20, 52, 56, 60])),
    Signature::new("md RAID 0.90, big-endian", &[End { back: 64 << 10, of: 64 << 10 }], &[(0, MD_BIG)])
        .when(|s| s.be32(4) == 0 && s.be32(8) <= 91),
    Signature::new("md RAID 1.0", &[End { back: 8 << 10, of: 4096 }], &[(0, MD)])
        .when(is_md)
        .labelled(Text(32, 32))
        .uuid_at(Uuid(16)),
    Signature::new("md RAID 1.1", FRONT, &[(0, MD)]).when(is_md).labelled(Text(32, 32)).uuid_at(Uuid(16)),
    Signature::new("md RAID 1.2", &[Start(4096)], &[(0, MD)]).when(is_md).labelled(Text(32, 32)).uuid_at(Uuid(16)),
    Signature::new(
        "DDF RAID",
        &[End { back: 512, of: 512 }, End { back: 257 * 512, of: 512 }, EndBlock(1)],
        &[(0, &[0xDE, 0x11, 0xDE, 0x11])],
    ),
    Signature::new("Intel RAID", &[EndBlock(2), End { back: 1024, of: 512 }], &[(0, b"Intel Raid ISM Cfg Sig. ")]),
    // Four labels of 256 KiB, two at either end; in each, 112 KiB of names and values end with a checksum of 40 bytes.
    Signature::new(
        "ZFS",
        &[
            Start(16 << 10),
            Start(272 << 10),
            End { back: 496 << 10, of: 256 << 10 },
            End { back: 240 << 10, of: 256 << 10 },
        ],
        &[
            ((112 << 10) - 40, &[0x11, 0x7A, 0x0C, 0xB1, 0x7A, 0xDA, 0x10, 0x02]),
            ((112 << 10) - 40, &[0x02, 0x10, 0xDA, 0x7A, 0xB1, 0x0C, 0x7A, 0x11]),
        ],
    )
    .of(112 << 10)
    .labelled(By(zfs::name))
    .uuid_at(By(zfs::guid)),
    Signature::new("bcache", &[Start(4096)], &[(24, BCACHE)])
        .when(|s| s.le64(8) == s.at / 512)
        .labelled(Text(72, 32))
        .uuid_at(Uuid(40)),
    Signature::new("Stratis", &[Start(512), Start(9 * 512)], &[(4, b"!Stra0tis\x86\xff\x02^\x41rh")])
        .uuid_at(Text(64, 32)),
    Signature::new("VDO", FRONT, &[(0, b"dmvdo001")]).uuid_at(Uuid(40)),
    Signature::new(
        "DRBD",
        &[End { back: 4096, of: 4096 }],
        &[(60, &[0x83, 0x74, 0x02, 0x6B]), (60, &[0x83, 0x74, 0x02, 0x6C]), (60, &[0x83, 0x74, 0x02, 0x6D])],
    ),
    Signature::new("device-mapper snapshot", FRONT, &[(0, b"SnAp")]).when(|s| s.le32(8) == 1),
    Signature::new("dm-verity", FRONT, &[(0, b"verity\0\0")]).uuid_at(Uuid(16)),
    Signature::new("dm-integrity", FRONT, &[(0, b"integrt\0")]),
    // Encryption. The second header of LUKS2 is where the size of the first has it.
    Signature::new("LUKS1", FRONT, &[(0, b"LUKS\xBA\xBE\0\x01")]).uuid_at(Text(168, 40)),
    Signature::new("LUKS2", FRONT, &[(0, b"LUKS\xBA\xBE\0\x02")]).labelled(Text(24, 48)).uuid_at(Text(168, 40)),
    Signature::new(
        "LUKS2",
        &[
            Start(16 << 10),
            Start(32 << 10),
            Start(64 << 10),
            Start(128 << 10),
            Start(256 << 10),
            Start(512 << 10),
            Start(1 << 20),
            Start(2 << 20),
            Start(4 << 20),
        ],
        &[(0, b"SKUL\xBA\xBE\0\x02")],
    )
    .when(|s| s.be64(256) == s.at)
    .labelled(Text(24, 48))
    .uuid_at(Text(168, 40)),
    Signature::new("BitLocker", FRONT, &[(3, b"-FVE-FS-")]).when(|s| s.has(510, &[0x55, 0xAA])),
    // Swap: the mark is at the end of a page, whose size is the machine's.
    Signature::new(
        "swap",
        FRONT,
        &[
            (4086, b"SWAPSPACE2"),
            (8182, b"SWAPSPACE2"),
            (16374, b"SWAPSPACE2"),
            (32758, b"SWAPSPACE2"),
            (65526, b"SWAPSPACE2"),
            (4086, b"SWAP-SPACE"),
        ],
    )
    .of(64 << 10)
    .labelled(Text(1052, 16))
    .uuid_at(Uuid(1036)),
    Signature::new(
        "hibernated system",
        FRONT,
        &[
            (4086, b"S1SUSPEND"),
            (4086, b"S2SUSPEND"),
            (4086, b"ULSUSPEND"),
            (4086, b"LINHIB0001"),
            (16374, b"S1SUSPEND"),
            (65526, b"S1SUSPEND"),
        ],
    )
    .of(64 << 10)
    .uuid_at(Uuid(1036)),
    // Stores of other engines.
    Signature::new(
        "Ceph BlueStore",
        &[Start(0), Start(1 << 30), Start(10 << 30), Start(100 << 30), Start(1000 << 30)],
        &[(0, b"bluestore block device\n")],
    )
    .uuid_at(Text(23, 36)),
    Signature::new("SPDK blobstore", FRONT, &[(0, b"SPDKBLOB")]),
    Signature::new("SPDK RAID", FRONT, &[(0, b"SPDKRAID")]),
    Signature::new("Oracle ASM disk", FRONT, &[(32, b"ORCLDISK")]).labelled(Text(40, 24)),
];

/// Whether the four entries can be partitions: then their first bytes are 0 or 80h, and what has a type has a length.
fn is_mbr(sector: &Structure<'_>) -> bool {
    entries(sector)
        .all(|(status, kind, start, sectors)| matches!(status, 0 | 0x80) && (kind == 0 || start != 0 && sectors != 0))
}

fn has_partitions(sector: &Structure<'_>, wanted: fn(u8) -> bool) -> bool {
    entries(sector).any(|(_, kind, _, _)| kind != 0 && wanted(kind))
}

/// Status, type, first sector and sectors of each entry.
fn entries(sector: &Structure<'_>) -> impl Iterator<Item = (u8, u8, u32, u32)> {
    [446, 462, 478, 494]
        .map(|at| (sector.byte(at), sector.byte(at + 4), sector.le32(at + 8), sector.le32(at + 12)))
        .into_iter()
}

/// A boot sector with a BIOS parameter block of FAT: a jump, and numbers that a FAT can have.
fn is_fat(sector: &Structure<'_>) -> bool {
    let jumps = sector.byte(0) == 0xE9 || sector.byte(0) == 0xEB && sector.byte(2) == 0x90;
    let (fats, media) = (sector.byte(16), sector.byte(21));
    let sectors = u32::from(sector.le16(19)).max(sector.le32(32));
    jumps
        && is_power_of_two(sector.le16(11).into(), 512, 4096)
        && is_power_of_two(sector.byte(13).into(), 1, 128)
        && sector.le16(14) != 0
        && matches!(fats, 1 | 2)
        && (media == 0xF0 || media >= 0xF8)
        && sectors != 0
        && (sector.le16(22) != 0 || sector.le32(36) != 0)
}

/// Which of ext2, ext3 and ext4 a superblock is, if it is one (fs/ext4/ext4.h).
fn ext_generation(superblock: &Structure<'_>) -> Option<u8> {
    const HAS_JOURNAL: u32 = 4;
    // What ext3 knows: file types, recovery, meta block groups; sparse superblocks, large files, trees of names.
    const EXT3_INCOMPAT: u32 = 0x2 | 0x4 | 0x10;
    const EXT3_RO_COMPAT: u32 = 0x1 | 0x2 | 0x4;
    if !is_ext(superblock) || is_ext_journal(superblock) {
        return None;
    }
    let (compat, incompat, ro_compat) = (superblock.le32(92), superblock.le32(96), superblock.le32(100));
    let newer = incompat & !EXT3_INCOMPAT != 0 || ro_compat & !EXT3_RO_COMPAT != 0;
    Some(match (newer, compat & HAS_JOURNAL) {
        (true, _) => 4,
        (false, 0) => 2,
        (false, _) => 3,
    })
}

fn is_ext_journal(superblock: &Structure<'_>) -> bool {
    const JOURNAL_DEVICE: u32 = 8;
    superblock.le32(96) & JOURNAL_DEVICE != 0 && superblock.le32(24) <= 6 && superblock.le32(76) <= 1
}

/// The magic has two bytes: the revision is 0 or 1, a block 1 to 64 KiB, and groups are not empty.
fn is_ext(superblock: &Structure<'_>) -> bool {
    superblock.le32(76) <= 1 && superblock.le32(24) <= 6 && superblock.le32(32) != 0 && superblock.le32(40) != 0
}

/// A superblock of version 1 says where it is.
fn is_md(superblock: &Structure<'_>) -> bool {
    superblock.le32(4) == 1 && superblock.le64(144) == superblock.at / 512
}

fn is_power_of_two(value: u32, least: u32, most: u32) -> bool {
    value.is_power_of_two() && (least..=most).contains(&value)
}

fn is_shifted(value: u32, shift: u32) -> bool {
    1u32.checked_shl(shift) == Some(value)
}
