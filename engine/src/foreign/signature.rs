//! What a row of the table is made of. Data and pure functions; nothing here fails or panics, whatever the bytes are:
//! what lies beyond them reads as zero.

/// Where a structure is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// So many bytes from the start.
    Start(u64),
    /// The logical block of this number.
    Block(u64),
    /// So many bytes before the end, which is rounded down to a multiple of `of` first.
    End { back: u64, of: u64 },
    /// So many logical blocks before the end: 1 is the last one.
    EndBlock(u64),
}

/// A structure as it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Structure<'a> {
    /// Bytes from the device's start.
    pub(super) at: u64,
    /// As many as the row asked for, or as there are.
    pub(super) bytes: &'a [u8],
}

impl<'a> Structure<'a> {
    pub(super) fn slice(&self, at: usize, len: usize) -> &'a [u8] {
        at.checked_add(len).and_then(|end| self.bytes.get(at..end)).unwrap_or_default()
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.slice(at, N).try_into().unwrap_or([0; N])
    }

    pub(super) fn byte(&self, at: usize) -> u8 {
        self.array::<1>(at)[0]
    }

    pub(super) fn le16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub(super) fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    pub(super) fn le32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(super) fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    pub(super) fn le64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    pub(super) fn be64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    /// Whether `bytes` stand at `at`.
    pub(super) fn has(&self, at: usize, bytes: &[u8]) -> bool {
        self.slice(at, bytes.len()) == bytes
    }
}

/// A name or an identifier within a structure, by its offset there.
#[derive(Clone, Copy)]
pub(super) enum Field {
    /// There is none.
    None,
    /// Characters, to the first NUL; at most so many bytes.
    Text(usize, usize),
    /// UTF-16LE, likewise.
    Utf16(usize, usize),
    /// A UUID of 16 bytes as it is written.
    Uuid(usize),
    /// One whose first three groups are little-endian.
    Guid(usize),
    /// Four little-endian words.
    Words([usize; 4]),
    /// A serial number of 32 bits, `0123-CDEF`.
    Serial32(usize),
    /// A serial number of 64 bits.
    Serial64(usize),
    /// The 32 characters of an LVM identifier.
    Lvm(usize),
    /// What this function finds.
    By(fn(&Structure<'_>) -> Option<String>),
}

impl Field {
    /// As text; `None` where it is empty or all zeroes.
    fn read(self, structure: &Structure<'_>) -> Option<String> {
        let uuid = |bytes: [u8; 16]| {
            let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            (bytes != [0; 16]).then(|| grouped(&text, &[8, 4, 4, 4, 12]))
        };
        match self {
            Self::None => None,
            Self::Text(at, len) => text(structure.slice(at, len)),
            Self::Utf16(at, len) => {
                let units = structure.slice(at, len).chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
                let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
                shown(&String::from_utf16_lossy(&units))
            }
            Self::Uuid(at) => uuid(structure.array(at)),
            Self::Guid(at) => {
                let mut bytes = structure.array(at);
                bytes[..4].reverse();
                bytes[4..6].reverse();
                bytes[6..8].reverse();
                uuid(bytes)
            }
            Self::Words(at) => {
                let words = at.map(|at| u128::from(structure.le32(at)));
                uuid(words.iter().fold(0, |number, word| number << 32 | word).to_be_bytes())
            }
            Self::Serial32(at) => {
                let serial = structure.le32(at);
                (serial != 0).then(|| format!("{:04X}-{:04X}", serial >> 16, serial & 0xFFFF))
            }
            Self::Serial64(at) => {
                let serial = structure.le64(at);
                (serial != 0).then(|| format!("{serial:016X}"))
            }
            Self::Lvm(at) => text(structure.slice(at, 32)).map(|text| grouped(&text, &[6, 4, 4, 4, 4, 4, 6])),
            Self::By(find) => find(structure),
        }
    }
}

/// Parted by hyphens into groups of these lengths.
fn grouped(text: &str, lengths: &[usize]) -> String {
    let mut rest = text;
    let mut groups = Vec::new();
    for length in lengths {
        let (group, tail) = rest.split_at_checked(*length).unwrap_or((rest, ""));
        groups.push(group);
        rest = tail;
    }
    groups.join("-")
}

/// Characters to the first NUL, without blanks around them.
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    shown(&String::from_utf8_lossy(&bytes[..end]))
}

/// As it can be shown on a terminal; `None` where nothing is left.
fn shown(text: &str) -> Option<String> {
    let text = text.trim();
    let shown = text.chars().flat_map(|character| {
        let escaped = character.is_control().then(|| character.escape_default());
        let plain = escaped.is_none().then_some(character);
        escaped.into_iter().flatten().chain(plain)
    });
    (!text.is_empty()).then(|| shown.collect())
}

/// A row: how one kind of contents is known.
pub(super) struct Signature {
    pub(super) name: &'static str,
    pub(super) places: &'static [Place],
    /// Bytes of the structure that are looked at.
    pub(super) length: u64,
    /// What stands in it, and where: one of them.
    magics: &'static [(usize, &'static [u8])],
    /// What else must be right. A magic of two bytes is in one of 65,536 blocks of anything.
    check: fn(&Structure<'_>) -> bool,
    label: Field,
    uuid: Field,
}

impl Signature {
    pub(super) const fn new(
        name: &'static str,
        places: &'static [Place],
        magics: &'static [(usize, &'static [u8])],
    ) -> Self {
        Self { name, places, length: 4096, magics, check: |_| true, label: Field::None, uuid: Field::None }
    }

    /// Looks at so many bytes.
    pub(super) const fn of(mut self, length: u64) -> Self {
        self.length = length;
        self
    }

    pub(super) const fn when(mut self, check: fn(&Structure<'_>) -> bool) -> Self {
        self.check = check;
        self
    }

    pub(super) const fn labelled(mut self, label: Field) -> Self {
        self.label = label;
        self
    }

    pub(super) const fn uuid_at(mut self, uuid: Field) -> Self {
        self.uuid = uuid;
        self
    }

    pub(super) fn matches(&self, structure: &Structure<'_>) -> bool {
        self.magics.iter().any(|(at, magic)| structure.has(*at, magic)) && (self.check)(structure)
    }

    pub(super) fn label(&self, structure: &Structure<'_>) -> Option<String> {
        self.label.read(structure)
    }

    pub(super) fn uuid(&self, structure: &Structure<'_>) -> Option<String> {
        self.uuid.read(structure)
    }

    /// The magics, for tests that plant them.
    #[cfg(test)]
    pub(super) fn magics(&self) -> &'static [(usize, &'static [u8])] {
        self.magics
    }
}
