//! A hash that is the same on every host and in every build: 64-bit multiply-and-fold over little-endian
//! words. It tells states apart in tests and reports; it is no defence against anyone.

const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0xd6e8_feb8_6659_fd93;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Accumulates words in order.
#[derive(Clone, Debug)]
pub struct StableHasher {
    state: u64,
}

impl StableHasher {
    /// An empty hash.
    #[must_use]
    pub fn new() -> Self {
        Self { state: K1 }
    }

    /// Adds one word.
    pub fn word(&mut self, word: u64) {
        self.state = fold(self.state ^ word, K0).rotate_left(23) ^ word.wrapping_mul(K1);
    }

    /// Adds bytes and their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.word(hash_bytes(bytes));
    }

    /// The hash so far.
    #[must_use]
    pub fn finish(&self) -> u64 {
        fold(self.state ^ K0, K1)
    }
}

impl Default for StableHasher {
    fn default() -> Self {
        Self::new()
    }
}

/// So that `#[derive(Hash)]` types can be fed in. Integers arrive as little-endian words on every host.
impl std::hash::Hasher for StableHasher {
    fn finish(&self) -> u64 {
        Self::finish(self)
    }
    fn write(&mut self, bytes: &[u8]) {
        self.bytes(bytes);
    }
    fn write_u8(&mut self, i: u8) {
        self.word(i.into());
    }
    fn write_u16(&mut self, i: u16) {
        self.word(i.into());
    }
    fn write_u32(&mut self, i: u32) {
        self.word(i.into());
    }
    fn write_u64(&mut self, i: u64) {
        self.word(i);
    }
    fn write_usize(&mut self, i: usize) {
        self.word(i as u64);
    }
    fn write_isize(&mut self, i: isize) {
        self.word(i as u64);
    }
}

/// Hash of a byte string, four independent lanes wide.
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut lanes = [K0, K1, !K0, !K1];
    let mut chunks = bytes.chunks_exact(32);
    for chunk in &mut chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(8)) {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            *lane = fold(*lane ^ word, K0).wrapping_add(word);
        }
    }
    let mut tail = StableHasher { state: bytes.len() as u64 };
    for chunk in chunks.remainder().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        tail.word(u64::from_le_bytes(word));
    }
    for lane in lanes {
        tail.word(lane);
    }
    tail.finish()
}
