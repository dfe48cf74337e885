//! The ways to hash several messages, and which of them is the fastest on this processor.

use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use crate::{avx512, sha};

/// A way to hash several messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Sixteen messages in the lanes of AVX-512.
    Lanes,
    /// Up to four messages in interleaved chains of SHA instructions, with the 32 registers of AVX-512.
    /// Zen 4: 18.0 ns a block instead of the 20.7 ns of [`Self::Chains`].
    EvexChains,
    /// The same with sixteen registers.
    Chains,
    /// One message after the other.
    Alone,
}

impl Method {
    /// All ways.
    pub const ALL: [Self; 4] = [Self::Lanes, Self::EvexChains, Self::Chains, Self::Alone];

    /// Whether this processor, and the operating system, support it. O(1).
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Lanes => avx512::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::EvexChains => sha::is_evex_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Chains => sha::is_available(),
            Self::Alone => true,
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The fastest one that this processor supports. O(1): the answer is cached.
    ///
    /// Lanes are faster than chains where a core executes an instruction of 512 bits at once (docs/decisions/0185).
    #[inline]
    pub fn fastest() -> Self {
        static FASTEST: OnceLock<Method> = OnceLock::new();
        *FASTEST.get_or_init(|| {
            let chains = [Self::EvexChains, Self::Chains];
            let order =
                if has_halved_vectors() { [&chains[..], &[Self::Lanes]] } else { [&[Self::Lanes], &chains[..]] };
            order.into_iter().flatten().copied().find(|method| method.is_available()).unwrap_or(Self::Alone)
        })
    }
}

/// Whether a core executes an instruction of 512 bits in two halves: of the processors with AVX-512, those of AMD's
/// family 19h (Zen 4) do.
fn has_halved_vectors() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::__cpuid;

        // SAFETY: every processor of x86-64 has the instruction, and leaves 0 and 1 of it.
        #[allow(unused_unsafe, reason = "safe in later versions of Rust")]
        let [vendor, model] = unsafe { [__cpuid(0), __cpuid(1)] };
        let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD";
        let family = (model.eax >> 8 & 0xf) + (model.eax >> 20 & 0xff);
        is_amd && family == 0x19
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}
