"""`python -m workers`: stays empty, since every forked child imports it again."""

if __name__ == "__main__":
    import gc
    import sys

    gc.disable()  # until everything is imported: there is no garbage in it

    if sys.argv[1:2] and sys.argv[1].startswith("--errand"):
        from workers.errands import main
    else:
        from workers.process.start import main

    main()
