//! From times of calls to figures: quantiles, the ratio of two sides, and what noise explains of it.

/// One way of calling, by rounds: times of its calls, ns.
pub type Rounds = Vec<Vec<u32>>;

/// Share of resampled ratios within the half-width.
const CONFIDENCE: f64 = 0.95;
const RESAMPLINGS: usize = 2_000;

/// The time that this share of all calls does not exceed, us.
pub fn quantile_us(rounds: &[&Rounds], share: f64) -> f64 {
    let mut all: Vec<u32> = rounds.iter().flat_map(|rounds| rounds.iter().flatten()).copied().collect();
    all.sort_unstable();
    let at = (all.len() as f64 * share) as usize;
    f64::from(all[at.min(all.len() - 1)]) / 1e3
}

/// Round by round, the median of one side over that of the other.
pub fn ratios(over: &Rounds, under: &Rounds) -> Vec<f64> {
    let pairs = over.iter().zip(under);
    pairs.map(|(over, under)| median_of(over) / median_of(under)).collect()
}

fn median_of(spans: &[u32]) -> f64 {
    let mut spans: Vec<f64> = spans.iter().map(|&span| span.into()).collect();
    median(&mut spans)
}

/// The middle of them.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// How far from 1 the median of resampled ratios of two equal sides is, in 95 of 100 cases.
pub fn half_width(identical: &[f64]) -> f64 {
    let mut random = 0x5eed_u64;
    let mut draw = || {
        // xorshift64: the same run gives the same figures.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        identical[(random % identical.len() as u64) as usize]
    };
    let mut off: Vec<f64> = (0..RESAMPLINGS)
        .map(|_| {
            let mut drawn: Vec<f64> = identical.iter().map(|_| draw()).collect();
            (median(&mut drawn) - 1.0).abs()
        })
        .collect();
    off.sort_by(f64::total_cmp);
    off[(RESAMPLINGS as f64 * CONFIDENCE) as usize]
}
