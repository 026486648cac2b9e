use proptest::prelude::*;

use super::*;
use crate::blocks::check_bounds;

/// A device whose bytes are zero but where something was put.
struct Device {
    block_size: u32,
    blocks: u64,
    /// Later ones over earlier ones.
    written: Vec<(u64, Vec<u8>)>,
    reads: usize,
}

impl Device {
    fn new(block_size: u32, bytes: u64) -> Self {
        Self { block_size, blocks: bytes / u64::from(block_size), written: Vec::new(), reads: 0 }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.written.push((at, bytes.to_owned()));
    }

    fn find(&mut self) -> Vec<ForeignContents> {
        find(self).unwrap()
    }

    fn names(&mut self) -> Vec<&'static str> {
        self.find().iter().map(|contents| contents.name).collect()
    }
}

impl Blocks for Device {
    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&mut self, slba: u64, data: &mut [u8]) -> Result<(), BlocksError> {
        check_bounds(self, "Read", slba, data.len() as u64)?;
        self.reads += 1;
        data.fill(0);
        let start = slba * u64::from(self.block_size);
        for (at, bytes) in &self.written {
            let (skipped, from) = (start.saturating_sub(*at) as usize, at.saturating_sub(start) as usize);
            if let (Some(bytes), Some(data)) = (bytes.get(skipped..), data.get_mut(from..)) {
                let len = bytes.len().min(data.len());
                data[..len].copy_from_slice(&bytes[..len]);
            }
        }
        Ok(())
    }

    fn write(&mut self, slba: u64, _: &[u8]) -> Result<(), BlocksError> {
        Err(BlocksError::ReadOnly { command: "Write", slba })
    }

    fn zero(&mut self, slba: u64, _: u64) -> Result<(), BlocksError> {
        Err(BlocksError::ReadOnly { command: "Write Zeroes", slba })
    }

    fn flush(&mut self) -> Result<(), BlocksError> {
        Ok(())
    }
}

const MIB: u64 = 1 << 20;

fn mbr(kinds: [u8; 4]) -> Vec<u8> {
    let mut sector = vec![0; 512];
    for (entry, kind) in kinds.iter().enumerate().filter(|(_, kind)| **kind != 0) {
        let at = 446 + 16 * entry;
        sector[at + 4] = *kind;
        sector[at + 8] = 1;
        sector[at + 12] = 100;
    }
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    sector
}

fn gpt_header() -> Vec<u8> {
    let mut header = b"EFI PART\0\0\x01\0\x5c\0\0\0".to_vec();
    header.resize(56, 0);
    header.extend(1..=16);
    header.resize(512, 0);
    header
}

#[test]
fn an_empty_device_has_nothing_and_costs_few_reads() {
    for block_size in [512, 4096, 65536] {
        let mut device = Device::new(block_size, 2048 << 30);
        assert_eq!(device.find(), []);
        assert!(device.reads <= 20, "{} reads", device.reads);
    }
    assert_eq!(Device::new(512, 0).find(), []);
    assert_eq!(Device::new(4096, 4096).find(), []);
}

#[test]
fn the_tables_of_partitions_are_told_apart() {
    let table = |sector: &[u8]| {
        let mut device = Device::new(512, 8 * MIB);
        device.put(0, sector);
        device.names()
    };
    assert_eq!(table(&mbr([0x83, 0, 0, 0])), ["MBR partition table"]);
    assert_eq!(table(&mbr([0xEE, 0, 0, 0])), [PROTECTIVE_MBR], "its GPT is gone");
    assert_eq!(table(&mbr([0xEE, 0x83, 0, 0])), ["MBR partition table"], "a hybrid one");
    assert_eq!(table(&mbr([0; 4])), [EMPTY_MBR]);
    let mut odd = mbr([0x83, 0, 0, 0]);
    odd[446] = 0x81;
    assert_eq!(table(&odd), [""; 0], "no table has such a status");
    odd[446] = 0x80;
    assert_eq!(table(&odd), ["MBR partition table"]);
    odd[446 + 12] = 0;
    assert_eq!(table(&odd), [""; 0], "no partition is empty");
    assert_eq!(table(&mbr([0; 4])[..511]), [""; 0]);
}

#[test]
fn a_gpt_is_one_thing_with_its_backup_and_its_protective_mbr() {
    for block_size in [512, 4096, 65536] {
        for table_block in [512, u64::from(block_size)] {
            let mut device = Device::new(block_size, 8 * MIB);
            device.put(0, &mbr([0xEE, 0, 0, 0]));
            device.put(table_block, &gpt_header());
            device.put(8 * MIB - table_block, &gpt_header());
            let gpt = ForeignContents {
                name: GPT,
                places: vec![table_block, 8 * MIB - table_block],
                label: None,
                uuid: Some("04030201-0605-0807-090a-0b0c0d0e0f10".to_owned()),
            };
            assert_eq!(device.find(), [gpt], "{block_size} {table_block}");
        }
        // The front was overwritten.
        let mut device = Device::new(block_size, 8 * MIB);
        device.put(8 * MIB - 512, &gpt_header());
        assert_eq!(device.find()[0].places, [8 * MIB - 512]);
    }
}

#[test]
fn what_is_found_is_told_in_a_line() {
    let contents = |label: Option<&str>, uuid: Option<&str>, places: &[u64]| {
        let (label, uuid) = (label.map(str::to_owned), uuid.map(str::to_owned));
        ForeignContents { name: "XFS", places: places.to_owned(), label, uuid }.to_string()
    };
    assert_eq!(contents(None, None, &[0]), "XFS at byte 0");
    assert_eq!(contents(Some("data"), None, &[0]), "XFS at byte 0 (label data)");
    assert_eq!(contents(None, Some("12"), &[0, 512]), "XFS at bytes 0, 512 (UUID 12)");
    assert_eq!(contents(Some("a"), Some("b"), &[0]), "XFS at byte 0 (label a, UUID b)");
}

#[test]
fn a_name_cannot_speak_to_the_terminal() {
    let mut device = Device::new(512, MIB);
    device.put(0, b"LUKS\xBA\xBE\0\x02");
    device.put(24, b"a\x1b[31m\nb");
    assert_eq!(device.find()[0].label.as_deref(), Some("a\\u{1b}[31m\\nb"));
}

#[test]
fn what_cannot_be_read_is_an_error() {
    struct Broken;
    impl Blocks for Broken {
        fn block_size(&self) -> u32 {
            512
        }
        fn blocks(&self) -> u64 {
            1 << 20
        }
        fn read(&mut self, slba: u64, _: &mut [u8]) -> Result<(), BlocksError> {
            Err(BlocksError::Device { command: "Read", slba, reason: "Unrecovered Read Error".to_owned() })
        }
        fn write(&mut self, _: u64, _: &[u8]) -> Result<(), BlocksError> {
            unreachable!("nothing is written")
        }
        fn zero(&mut self, _: u64, _: u64) -> Result<(), BlocksError> {
            unreachable!("nothing is written")
        }
        fn flush(&mut self) -> Result<(), BlocksError> {
            unreachable!("nothing is written")
        }
    }
    assert!(matches!(find(&mut Broken), Err(BlocksError::Device { .. })));
}

/// Blocks of a KV cache can hold anything; what repeats most are zeroes, ones and single numbers.
#[test]
fn what_repeats_is_nobodys() {
    for pattern in [[0xFF, 0xFF], [0x55, 0xAA], [0xAA, 0x55], [0x53, 0xEF], [0x80, 0x3F], [0x34, 0x34], [0xEB, 0x90]] {
        for block_size in [512, 4096] {
            let mut device = Device::new(block_size, 3 * MIB);
            device.put(0, &pattern.repeat(3 << 19));
            assert_eq!(device.names(), [""; 0], "{pattern:02x?}");
        }
    }
}

/// Random bytes of a seed, two MiB of them: both ends of a small device.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let words = (0..2 * MIB / 8).flat_map(|_| {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes()
    });
    words.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn random_blocks_are_nobodys(seed: u64, shift in 9u32..=16) {
        let mut device = Device::new(1 << shift, 2 * MIB);
        device.put(0, &noise(seed));
        prop_assert_eq!(device.find(), []);
    }

    /// Two bytes of a magic are in one block of 65,536: with them in place random blocks are nobody's all the same.
    #[test]
    fn a_short_magic_alone_is_not_believed(seed: u64) {
        let mut device = Device::new(512, 2 * MIB);
        device.put(0, &noise(seed));
        device.put(510, &[0x55, 0xAA]);
        device.put(1024 + 56, &[0x53, 0xEF]);
        device.put(1024 + 6, &[0x34, 0x34]);
        device.put(2 * MIB - 4096 + 6, &[0x34, 0x34]);
        device.put(0, b"ER");
        prop_assert_eq!(device.find(), []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every mark, at every place, with any bytes around it, on devices of any size: what is found is where it was put.
    #[test]
    fn nothing_panics_on_any_bytes(
        row in 0..SIGNATURES.len(),
        place in 0usize..9,
        which in 0usize..6,
        shift in 9u32..=16,
        bytes in prop_oneof![0u64..300_000, 0u64..9 * MIB, Just(u64::MAX)],
        around in proptest::collection::vec((0u64..1200, any::<u8>()), 0..300),
    ) {
        let mut device = Device::new(1 << shift, bytes);
        let signature = &SIGNATURES[row];
        let place = signature.places[place % signature.places.len()];
        let (offset, magic) = signature.magics()[which % signature.magics().len()];
        if let Some(at) = Window::new(&mut device).resolve(place) {
            for (offset, byte) in around {
                device.put(at.saturating_add(offset), &[byte]);
            }
            device.put(at.saturating_add(offset as u64), magic);
        }
        for contents in device.find() {
            prop_assert!(contents.places.iter().all(|at| at >> shift < device.blocks));
            prop_assert!(!contents.to_string().contains(char::is_control));
        }
    }
}

#[test]
fn a_device_that_says_it_has_more_bytes_than_can_be_counted() {
    let mut device = Device::new(65536, 0);
    device.blocks = u64::MAX;
    assert_eq!(device.find(), []);
}
