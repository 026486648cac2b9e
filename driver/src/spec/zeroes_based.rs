//! Counts that the wire stores less one ("0's based", NVM Express Base 2.1, 1.4).

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A count that is stored less one: the raw value 0 means one.
///
/// There is no conversion from or to a plain integer, so that a count cannot be taken for the raw
/// value: [`count`](ZeroesBased::count) and [`from_count`](ZeroesBased::from_count) speak of
/// things, [`raw`](Self::raw) and [`from_raw`](Self::from_raw) of the wire.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct ZeroesBased<T>(T);

impl<T: Copy> ZeroesBased<T> {
    /// The value as it is on the wire: one less than the count.
    #[inline]
    pub const fn from_raw(raw: T) -> Self {
        Self(raw)
    }

    /// The number on the wire: one less than the count.
    #[inline]
    pub const fn raw(self) -> T {
        self.0
    }
}

macro_rules! zeroes_based {
    ($raw:ident, $count:ident, $greatest:literal) => {
        impl ZeroesBased<$raw> {
            /// One.
            pub const ONE: Self = Self(0);

            #[doc = concat!("`n` things, for `n` from 1 to ", $greatest, "; otherwise `None`.")]
            #[inline]
            pub const fn from_count(n: $count) -> Option<Self> {
                if n == 0 || n - 1 > $raw::MAX as $count {
                    return None;
                }
                Some(Self((n - 1) as $raw))
            }

            #[doc = concat!("How many: 1 to ", $greatest, ".")]
            #[inline]
            pub const fn count(self) -> $count {
                self.0 as $count + 1
            }
        }

        impl fmt::Debug for ZeroesBased<$raw> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Display for ZeroesBased<$raw> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.count())
            }
        }
    };
}

zeroes_based!(u8, u32, "256");
zeroes_based!(u16, u32, "65,536");
zeroes_based!(u32, u64, "4,294,967,296");

#[cfg(test)]
mod tests {
    use super::ZeroesBased;

    #[test]
    fn ends_of_the_range() {
        assert_eq!(ZeroesBased::<u16>::from_count(0), None);
        assert_eq!(
            ZeroesBased::<u16>::from_count(1),
            Some(ZeroesBased::<u16>::ONE)
        );
        assert_eq!(
            ZeroesBased::<u16>::from_count(65_536).unwrap().raw(),
            0xFFFF
        );
        assert_eq!(ZeroesBased::<u16>::from_count(65_537), None);
        assert_eq!(ZeroesBased::<u8>::from_count(256).unwrap().raw(), 0xFF);
        assert_eq!(ZeroesBased::<u8>::from_count(257), None);
        assert_eq!(
            ZeroesBased::<u32>::from_count(1 << 32).unwrap().raw(),
            u32::MAX
        );
        assert_eq!(ZeroesBased::<u32>::from_count((1 << 32) + 1), None);
    }

    proptest::proptest! {
        #[test]
        fn count_and_raw_differ_by_one(raw: u16) {
            let value = ZeroesBased::<u16>::from_raw(raw);
            proptest::prop_assert_eq!(value.count(), u32::from(raw) + 1);
            proptest::prop_assert_eq!(ZeroesBased::<u16>::from_count(value.count()), Some(value));
        }
    }
}
