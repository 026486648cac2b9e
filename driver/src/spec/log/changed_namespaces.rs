//! Changed Attached Namespace List, LID 04h (NVM Express Base 2.1, 5.1.12.1.5).

use core::mem::size_of;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::spec::command::NSID_ALL;

/// Changed Attached Namespace List log page, LID 04h (Base 2.1, 5.1.12.1.5): up to 1,024 identifiers of namespaces that
/// have changed since the page was last read, increasing, unused entries zero. More than that are one entry FFFFFFFFh.
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ChangedNamespaceList {
    /// The entries. See [`iter`](Self::iter).
    pub nsid: [u32; 1024],
}

const _: () = assert!(size_of::<ChangedNamespaceList>() == 4096);

impl Default for ChangedNamespaceList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl ChangedNamespaceList {
    /// Whether more namespaces have changed than the page can name.
    pub const fn overflowed(&self) -> bool {
        self.nsid[0] == NSID_ALL
    }

    /// The identifiers before the first zero. That they increase is not checked.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.nsid.iter().copied().take_while(|&nsid| nsid != 0)
    }

    /// A list of `nsids`, which the caller gives in increasing order; the mark of an overflow where they are too many.
    pub fn from_nsids(nsids: impl IntoIterator<Item = u32>) -> Self {
        let mut list = Self::default();
        let mut nsids = nsids.into_iter();
        for (entry, nsid) in list.nsid.iter_mut().zip(nsids.by_ref()) {
            *entry = nsid;
        }
        if nsids.next().is_some() {
            list = Self::default();
            list.nsid[0] = NSID_ALL;
        }
        list
    }
}

impl core::fmt::Debug for ChangedNamespaceList {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
