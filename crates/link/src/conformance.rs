//! (suite)
