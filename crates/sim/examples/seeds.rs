use punctual_sim::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (from, to): (u64, u64) = (a[1].parse().unwrap(), a[2].parse().unwrap());
    let options = Options { trace: a.len() > 3, ..Options::default() };
    let t = std::time::Instant::now();
    let out = run_many(from..to, &options, 2, |o| {
        println!(
            "seed {} msgs {} miss {} adm {} ref {} be {} pk {} exc {} tight {} viol {} {:?}",
            o.seed,
            o.messages,
            o.misses,
            o.admitted,
            o.refused,
            o.best_effort,
            o.packets,
            o.excused,
            o.tightness_percent,
            o.violations_total,
            t.elapsed()
        );
        for v in o.violations.iter().take(6) {
            println!("    {}", v.what);
        }
    })
    .unwrap();
    for o in &out {
        for l in &o.trace {
            println!("{l}");
        }
    }
    let r = Report::of(&out);
    println!(
        "{} msgs {} misses {} viol {} adm {} ref {} {}",
        r.seeds, r.messages, r.misses, r.violations_total, r.admitted, r.refused, r.digest
    );
}
