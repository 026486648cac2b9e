//! Namespace lists (NVM Express Base 2.1, 4.6.2).

use core::mem::size_of;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Active Namespace ID list, CNS 02h: up to 1,024 identifiers, increasing, unused entries zero (Base
/// 2.1, 5.1.13.2.2). The next list is asked for with the last identifier of a full one.
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ActiveNamespaceList {
    /// The entries. See [`iter`](Self::iter).
    pub nsid: [u32; 1024],
}

const _: () = assert!(size_of::<ActiveNamespaceList>() == super::IDENTIFY_LENGTH);

impl Default for ActiveNamespaceList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl ActiveNamespaceList {
    /// The identifiers before the first zero. That they increase is not checked.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.nsid.iter().copied().take_while(|&nsid| nsid != 0)
    }

    /// A list of the first 1,024 of `nsids`, which the caller gives in increasing order.
    pub fn from_nsids(nsids: impl IntoIterator<Item = u32>) -> Self {
        let mut list = Self::default();
        for (entry, nsid) in list.nsid.iter_mut().zip(nsids) {
            *entry = nsid;
        }
        list
    }
}

impl core::fmt::Debug for ActiveNamespaceList {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
