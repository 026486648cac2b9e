//! Namespace Identification Descriptor list, CNS 03h (NVM Express Base 2.1, 5.1.13.2.3).
//!
//! Descriptors follow each other: type (NIDT), length (NIDL), two reserved bytes, identifier (NID).
//! A length of zero ends the list, and so does the end of the page.

use super::IDENTIFY_LENGTH;
use crate::spec::command::Csi;

/// The bytes before an identifier: NIDT, NIDL and two reserved.
const HEADER_LENGTH: usize = 4;

/// One descriptor of the list (Base 2.1, 5.1.13.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceIdentifier<'a> {
    /// NIDT 1h: IEEE Extended Unique Identifier, most significant byte first.
    Eui64([u8; 8]),
    /// NIDT 2h: Namespace Globally Unique Identifier, most significant byte first.
    Nguid([u8; 16]),
    /// NIDT 3h: Namespace UUID, as RFC 9562 lays it out.
    Uuid([u8; 16]),
    /// NIDT 4h: the namespace's Command Set Identifier.
    Csi(Csi),
    /// A type that is reserved in the specification that this follows.
    Reserved {
        /// The type, NIDT.
        nidt: u8,
        /// The identifier, NID.
        nid: &'a [u8],
    },
}

/// What is wrong with a descriptor list: the device's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// A known type with a length that it does not have.
    #[error(
        "namespace identification descriptor at byte {offset}: type {nidt:02X}h has {nidl} bytes, it should have {expected}"
    )]
    Length {
        /// Where the descriptor begins, in bytes.
        offset: usize,
        /// Its type.
        nidt: u8,
        /// The length that it claims, in bytes.
        nidl: u8,
        /// The length of that type, in bytes.
        expected: u8,
    },
    /// A descriptor that does not end within the page.
    #[error(
        "namespace identification descriptor at byte {offset}: {nidl} bytes of identifier do not fit in the 4,096-byte list"
    )]
    PastEnd {
        /// Where the descriptor begins, in bytes.
        offset: usize,
        /// The length that it claims, in bytes.
        nidl: u8,
    },
}

/// The descriptors of a list. After an error there are no more.
#[derive(Clone, Debug)]
pub struct Descriptors<'a> {
    page: &'a [u8; IDENTIFY_LENGTH],
    offset: usize,
}

impl<'a> Descriptors<'a> {
    /// The descriptors in `page`, as the controller returned it.
    pub const fn new(page: &'a [u8; IDENTIFY_LENGTH]) -> Self {
        Self { page, offset: 0 }
    }

    fn descriptor(
        &self,
        rest: &'a [u8],
    ) -> Result<(NamespaceIdentifier<'a>, usize), DescriptorError> {
        let offset = self.offset;
        let (nidt, nidl) = (rest[0], rest[1]);
        let length = HEADER_LENGTH + usize::from(nidl);
        let nid = rest
            .get(HEADER_LENGTH..length)
            .ok_or(DescriptorError::PastEnd { offset, nidl })?;
        let wrong = |expected| DescriptorError::Length {
            offset,
            nidt,
            nidl,
            expected,
        };
        let identifier = match nidt {
            1 => NamespaceIdentifier::Eui64(nid.try_into().map_err(|_| wrong(8))?),
            2 => NamespaceIdentifier::Nguid(nid.try_into().map_err(|_| wrong(16))?),
            3 => NamespaceIdentifier::Uuid(nid.try_into().map_err(|_| wrong(16))?),
            4 => {
                let [csi] = nid.try_into().map_err(|_| wrong(1))?;
                NamespaceIdentifier::Csi(Csi::from_raw(csi))
            }
            _ => NamespaceIdentifier::Reserved { nidt, nid },
        };
        Ok((identifier, length))
    }
}

impl<'a> Iterator for Descriptors<'a> {
    type Item = Result<NamespaceIdentifier<'a>, DescriptorError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.page.get(self.offset..)?;
        if rest.len() < HEADER_LENGTH || rest[1] == 0 {
            return None;
        }
        match self.descriptor(rest) {
            Ok((identifier, length)) => {
                self.offset += length;
                Some(Ok(identifier))
            }
            Err(error) => {
                self.offset = IDENTIFY_LENGTH;
                Some(Err(error))
            }
        }
    }
}

impl core::iter::FusedIterator for Descriptors<'_> {}

/// The list has no room for another descriptor, or the identifier is longer than 255 bytes or empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an identifier of {length} bytes does not go into a namespace identification descriptor list with {free} bytes free; it may have 1 to 255 bytes after a header of 4"
)]
pub struct DescriptorListFull {
    /// The identifier's length in bytes.
    pub length: usize,
    /// What is free in the list, in bytes.
    pub free: usize,
}

/// Builds a list, for a controller.
#[derive(Clone, Debug)]
pub struct DescriptorWriter {
    page: Box<[u8; IDENTIFY_LENGTH]>,
    offset: usize,
}

impl Default for DescriptorWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl DescriptorWriter {
    /// An empty list.
    pub fn new() -> Self {
        Self {
            page: Box::new([0; IDENTIFY_LENGTH]),
            offset: 0,
        }
    }

    /// Appends a descriptor.
    ///
    /// # Errors
    /// [`DescriptorListFull`], the list unchanged, when it does not fit.
    pub fn push(&mut self, identifier: NamespaceIdentifier<'_>) -> Result<(), DescriptorListFull> {
        let csi;
        let (nidt, nid): (u8, &[u8]) = match &identifier {
            NamespaceIdentifier::Eui64(nid) => (1, nid),
            NamespaceIdentifier::Nguid(nid) => (2, nid),
            NamespaceIdentifier::Uuid(nid) => (3, nid),
            NamespaceIdentifier::Csi(nid) => {
                csi = [nid.raw()];
                (4, &csi)
            }
            NamespaceIdentifier::Reserved { nidt, nid } => (*nidt, nid),
        };
        let free = IDENTIFY_LENGTH - self.offset;
        let full = DescriptorListFull {
            length: nid.len(),
            free,
        };
        let nidl = u8::try_from(nid.len())
            .ok()
            .filter(|&nidl| nidl != 0)
            .ok_or(full)?;
        if free < HEADER_LENGTH + nid.len() {
            return Err(full);
        }
        let (header, rest) = self.page[self.offset..].split_at_mut(HEADER_LENGTH);
        header.copy_from_slice(&[nidt, nidl, 0, 0]);
        rest[..nid.len()].copy_from_slice(nid);
        self.offset += HEADER_LENGTH + nid.len();
        Ok(())
    }

    /// The list as it is returned to the host; what follows the last descriptor is zero.
    pub fn finish(self) -> Box<[u8; IDENTIFY_LENGTH]> {
        self.page
    }
}
