//! Which controllers the guest has. Both sides know it: the host makes them, and the guest finds them in this order.

/// What a namespace is formatted as, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Bytes of a logical block.
    pub lba_size: u32,
    /// Bytes of metadata of each block.
    pub metadata: u16,
    /// Protection type, 0 for none.
    pub protection: u8,
    /// Whether protection information comes first in the metadata, not last.
    pub first: bool,
    /// Whether metadata follows each block's data.
    pub extended: bool,
}

impl Format {
    const fn plain(lba_size: u32) -> Self {
        Self { lba_size, metadata: 0, protection: 0, first: false, extended: false }
    }

    const fn with_metadata(lba_size: u32, metadata: u16, protection: u8, extended: bool) -> Self {
        Self { lba_size, metadata, protection, first: false, extended }
    }
}

/// A controller and its namespaces, from number 1 on.
#[derive(Debug, Clone, Copy)]
pub struct Drive {
    /// MDTS.
    pub mdts: u8,
    /// Further options of QEMU's controller, each with a comma before it.
    pub options: &'static str,
    /// Its namespaces. One without any has those of the controller before it, in the same subsystem.
    pub namespaces: &'static [Format],
}

impl Drive {
    const fn plain(lba_size: &'static [Format], mdts: u8) -> Self {
        Self { mdts, options: "", namespaces: lba_size }
    }
}

const BLOCKS_OF_512: &[Format] = &[Format::plain(512)];
const BLOCKS_OF_4096: &[Format] = &[Format::plain(4096)];

/// Metadata of each size that QEMU has, in both places, with each protection type and with none; its type 3 with the
/// information first. The last is as long again without any, and is formatted by a check.
pub const FORMATS: &[Format] = &[
    Format::with_metadata(512, 8, 1, true),
    Format::with_metadata(512, 8, 1, false),
    Format::with_metadata(512, 8, 2, true),
    Format::with_metadata(512, 8, 2, false),
    Format::with_metadata(512, 8, 3, true),
    Format::with_metadata(512, 8, 3, false),
    Format::with_metadata(4096, 8, 0, true),
    Format::with_metadata(4096, 16, 0, false),
    Format::with_metadata(4096, 16, 1, true),
    Format::with_metadata(512, 64, 2, false),
    Format { first: true, ..Format::with_metadata(4096, 64, 3, false) },
    Format { first: true, ..Format::with_metadata(512, 16, 1, true) },
    Format::plain(512),
];

/// Plain controllers, which device tests use; the first is used with the memory of another function, too. QEMU 7.2
/// fails commands of more than 1,024 pages, so MDTS is neither 0 nor above 9.
pub const PLAIN: [Drive; 4] = [
    Drive::plain(BLOCKS_OF_512, 7),
    Drive::plain(BLOCKS_OF_4096, 9),
    Drive::plain(BLOCKS_OF_512, 1),
    Drive::plain(BLOCKS_OF_512, 5),
];

/// Controllers that each have something of their own: formats, few queues and a Controller Memory Buffer, and two of one
/// subsystem with the same namespace.
pub const SPECIAL: [Drive; 4] = [
    Drive { mdts: 7, options: "", namespaces: FORMATS },
    Drive { mdts: 7, options: ",max_ioqpairs=1,msix_qsize=2,cmb_size_mb=16", namespaces: BLOCKS_OF_4096 },
    Drive { mdts: 7, options: ",subsys=subsystem", namespaces: BLOCKS_OF_512 },
    Drive { mdts: 7, options: ",subsys=subsystem", namespaces: &[] },
];

/// Controllers that are each in a slot of their own: the kernel is asked to give the first up, and the second is pulled.
pub const SLOTS: [Drive; 2] = [Drive::plain(BLOCKS_OF_4096, 7), Drive::plain(BLOCKS_OF_4096, 7)];

/// What QEMU calls the controller that the kernel is asked to give up.
pub fn unplugged() -> String {
    id(PLAIN.len() + SPECIAL.len())
}

/// What QEMU calls a controller, by its place among [`all`].
pub fn id(index: usize) -> String {
    format!("nvme{index}")
}

/// All of them, in the order of their addresses.
pub fn all() -> impl Iterator<Item = Drive> {
    PLAIN.into_iter().chain(SPECIAL).chain(SLOTS)
}
