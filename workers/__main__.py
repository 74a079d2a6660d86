"""`python -m workers`: stays empty, since every forked child imports it again."""

if __name__ == "__main__":
    import gc

    gc.disable()  # until everything is imported: there is no garbage in it

    from workers.process.start import main

    main()
