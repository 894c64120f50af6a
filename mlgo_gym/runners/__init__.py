"""Model runners: whatever answers observations, behind LLVM's ``MLModelRunner`` contract."""
