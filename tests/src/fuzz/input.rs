//! What a fuzzer gives, taken from the front.

/// Bytes that are consumed once. When none are left, everything is zero.
#[derive(Debug, Default)]
pub struct Input {
    bytes: Vec<u8>,
    at: usize,
}

impl Input {
    /// An input of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), at: 0 }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Fills `to`.
    pub fn fill(&mut self, to: &mut [u8]) {
        let left = &self.bytes[self.at..];
        let there = left.len().min(to.len());
        to[..there].copy_from_slice(&left[..there]);
        to[there..].fill(0);
        self.at += there;
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// One of `choices`; the first for a zero.
    ///
    /// # Panics
    /// When there is none to choose.
    pub fn choice<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.u8()) % choices.len()]
    }

    /// Whether the next byte's lowest bit is set.
    pub fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }
}
