//! The three shapes that wire values have: a number whose values have names, a set of flags, and a
//! word divided into fields.

/// Defines a number whose values have names: an opcode, an identifier, a status code.
///
/// Each entry is `CONSTANT = value, "Name in the specification"`. Values without an entry are
/// representable, since the other side may send them.
macro_rules! codes {
    (
        $(#[$meta:meta])*
        pub struct $ty:ident($raw:ident) {
            $( $(#[$item:meta])* $name:ident = $value:expr, $text:literal; )+
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default,
            ::zerocopy::FromBytes, ::zerocopy::IntoBytes, ::zerocopy::Immutable, ::zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        pub struct $ty($raw);

        impl $ty {
            $( #[doc = concat!($text, ".")] $(#[$item])* pub const $name: Self = Self($value); )+

            /// Every value that has a name, in the order of the specification's table.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The value as it is on the wire.
            #[inline]
            pub const fn from_raw(raw: $raw) -> Self {
                Self(raw)
            }

            /// The number on the wire.
            #[inline]
            pub const fn raw(self) -> $raw {
                self.0
            }

            /// The specification's name, or `None` for a reserved or vendor specific value.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $( Self::$name => Some($text), )+
                    _ => None,
                }
            }
        }

        impl ::core::fmt::Debug for $ty {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }

        impl ::core::fmt::Display for $ty {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                write!(f, "{} ({:02X}h)", self.name().unwrap_or("reserved or vendor specific"), self.0)
            }
        }
    };
}

/// Defines a set of flags that lies in a wire structure. Bits without a name are kept.
macro_rules! wire_flags {
    (
        $(#[$meta:meta])*
        pub struct $ty:ident($raw:ident) {
            $( $(#[$($item:tt)*])* $name:ident = $value:expr; )+
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, PartialEq, Eq, Hash, Default,
            ::zerocopy::FromBytes, ::zerocopy::IntoBytes, ::zerocopy::Immutable, ::zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        pub struct $ty($raw);

        ::bitflags::bitflags! {
            impl $ty: $raw {
                $( $(#[$($item)*])* const $name = $value; )+
                // Reserved bits are the other side's to set; dropping them would hide them.
                const _ = !0;
            }
        }

        impl $ty {
            /// The flags as they are on the wire, reserved bits included.
            #[inline]
            pub const fn from_raw(raw: $raw) -> Self {
                Self(raw)
            }

            /// The bits on the wire.
            #[inline]
            pub const fn raw(self) -> $raw {
                self.0
            }
        }

        impl ::core::fmt::Debug for $ty {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                write!(f, concat!(stringify!($ty), "("))?;
                ::bitflags::parser::to_writer(self, &mut *f)?;
                write!(f, ")")
            }
        }
    };
}

/// Defines a register or a dword of its own: a word divided into fields (see `fields`).
macro_rules! wire_word {
    (
        $(#[$meta:meta])*
        pub struct $ty:ident($raw:ident) { $($fields:tt)* }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, PartialEq, Eq, Hash, Default,
            ::zerocopy::FromBytes, ::zerocopy::IntoBytes, ::zerocopy::Immutable, ::zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        pub struct $ty($raw);

        impl $ty {
            /// The word as it was read.
            #[inline]
            pub const fn from_bits(bits: $raw) -> Self {
                Self(bits)
            }

            /// The word as it is written, reserved bits included.
            #[inline]
            pub const fn bits(self) -> $raw {
                self.0
            }
        }

        fields! { impl $ty, 0: $raw { $($fields)* } }
    };
}

/// Getters and `with_*` setters for the fields of one word of a type.
///
/// An entry is `getter / setter [lowest bit, width]: Type;`. The type is `bool`, an integer, or
/// anything with `from_raw` and `raw`. A setter leaves every other bit alone. A value wider than
/// its field is the caller's mistake: debug builds assert, others drop the excess bits.
macro_rules! fields {
    (
        impl $ty:ident, $place:tt: $raw:ident {
            $( $(#[$meta:meta])* $get:ident / $with:ident [$low:literal, $width:literal]: $kind:ident $(<$of:ident>)?; )*
        }
    ) => {
        impl $ty { $(
            $(#[$meta])*
            #[inline]
            pub const fn $get(self) -> $kind $(<$of>)? {
                let value = (self.$place >> $low) & ($raw::MAX >> ($raw::BITS - $width));
                fields!(@from value, $kind $(<$of>)?)
            }

            #[doc = concat!("The same value with [`", stringify!($get), "`](Self::", stringify!($get), ") replaced.")]
            #[inline]
            #[must_use]
            pub const fn $with(mut self, value: $kind $(<$of>)?) -> Self {
                let mask = $raw::MAX >> ($raw::BITS - $width);
                let value = fields!(@into value, $raw, $kind $(<$of>)?);
                debug_assert!(value <= mask, concat!("value too wide for the field ", stringify!($get)));
                self.$place = (self.$place & !(mask << $low)) | ((value & mask) << $low);
                self
            }
        )* }
    };
    (@from $value:ident, bool) => { $value != 0 };
    (@from $value:ident, u8) => { $value as u8 };
    (@from $value:ident, u16) => { $value as u16 };
    (@from $value:ident, u32) => { $value as u32 };
    (@from $value:ident, u64) => { $value as u64 };
    (@from $value:ident, $kind:ident $(<$of:ident>)?) => { <$kind $(<$of>)?>::from_raw($value as _) };
    (@into $value:ident, $raw:ident, bool) => { $value as $raw };
    (@into $value:ident, $raw:ident, u8) => { $value as $raw };
    (@into $value:ident, $raw:ident, u16) => { $value as $raw };
    (@into $value:ident, $raw:ident, u32) => { $value as $raw };
    (@into $value:ident, $raw:ident, u64) => { $value as $raw };
    (@into $value:ident, $raw:ident, $kind:ident $(<$of:ident>)?) => { $value.raw() as $raw };
}

/// A property test over fields of one word. An entry is `getter / setter = mask`, the mask written
/// from the specification's table. `make` puts a word into an otherwise arbitrary value.
///
/// For all words `a` and `b`: the getter sees its mask's bits and no others, and setting `b`'s field
/// in `a` replaces exactly those bits.
#[cfg(test)]
macro_rules! field_properties {
    (
        $test:ident, $raw:ident, $make:expr;
        $( $get:ident / $with:ident = $mask:literal; )+
    ) => {
        ::proptest::proptest! {
            #[test]
            fn $test(a: $raw, b: $raw) {
                let make = $make;
                $(
                    let mask: $raw = $mask;
                    ::proptest::prop_assert_eq!(make(b).$get(), make(b & mask | a & !mask).$get(), "{}", stringify!($get));
                    ::proptest::prop_assert_eq!(
                        make(a).$with(make(b).$get()),
                        make(a & !mask | b & mask),
                        "{}",
                        stringify!($with)
                    );
                )+
            }
        }
    };
}
